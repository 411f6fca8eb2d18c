#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "autograd/base/check.h"
#include "data/files/json_reader.h"
#include "data/gguf/gguf_pre_tokenizer.h"
#include "data/gguf/gguf_tokenizer_export.h"

namespace focus {
namespace {

using GgufJson = nlohmann::json;

constexpr const char* kSpaceMark = "\xE2\x96\x81";  // U+2581
constexpr const char* kGpt2Expression =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

[[noreturn]] void refuse_step(const std::string& where, const std::string& what) {
  fail("{}: {} cannot be represented in a GGUF file, so llama.cpp would split texts differently",
       where, what);
}

/// The steps of a Sequence, or the one that there is.
std::vector<GgufJson> steps_of(const GgufJson& json, const char* list) {
  std::vector<GgufJson> steps;
  if (json.is_null()) return steps;
  if (json.value("type", "") != "Sequence") return {json};
  for (const GgufJson& each : json.value(list, GgufJson::array()))
    for (GgufJson& step : steps_of(each, list)) steps.push_back(std::move(step));
  return steps;
}

/// How a text is split before byte-level BPE, in one form of what may be written in several.
GgufJson canonical_splits(const GgufJson& pre_tokenizer) {
  GgufJson splits = GgufJson::array();
  const auto split = [&](const GgufJson& pattern, const std::string& behavior, bool invert) {
    splits.push_back({"Split", pattern, behavior, invert});
  };
  for (const GgufJson& step : steps_of(pre_tokenizer, "pretokenizers")) {
    const std::string type = step.value("type", "");
    if (type == "ByteLevel") {
      if (step.value("use_regex", true)) split({{"Regex", kGpt2Expression}}, "Isolated", false);
      splits.push_back({"ByteLevel", step.value("add_prefix_space", true)});
    } else if (type == "Split") {
      split(step.value("pattern", GgufJson()), step.value("behavior", ""),
            step.value("invert", false));
    } else if (type == "Digits") {
      splits.push_back({"Digits", step.value("individual_digits", false)});
    } else {
      splits.push_back(step);
    }
  }
  return splits;
}

/// llama.cpp's word for what splits alike; of several the one whose other rules fit.
const GgufPreTokenizer& recognised(const GgufJson& file, bool nfc, const std::string& where) {
  const GgufJson splits = canonical_splits(file.value("pre_tokenizer", GgufJson()));
  const bool ignore_merges = file.at("model").value("ignore_merges", false);
  const GgufPreTokenizer* found = nullptr;
  for (const GgufPreTokenizer& each : gguf_pre_tokenizers()) {
    if (canonical_splits(each.steps) != splits || each.ignore_merges != ignore_merges) continue;
    if (found == nullptr || each.nfc == nfc) found = &each;
  }
  if (found == nullptr)
    refuse_step(where, fmt::format("its pre_tokenizer {}{}",
                                   shown_json(file.value("pre_tokenizer", GgufJson())),
                                   ignore_merges ? " with ignore_merges" : ""));
  return *found;
}

void put_vocabulary(const GgufJson& file, GgufTokens& t) {
  for (const auto& [token, id] : file.at("model").at("vocab").items())
    t.put(id.get<std::int32_t>(), token, TokenType::normal);
}

void put_added(const GgufJson& file, GgufTokens& t) {
  bool takes_blanks = false;
  for (const GgufJson& added : file.value("added_tokens", GgufJson::array())) {
    const bool special = added.value("special", false);
    t.put(added.at("id").get<std::int32_t>(), added.at("content").get<std::string>(),
          special ? TokenType::control : TokenType::user_defined);
    for (const char* flag : {"lstrip", "rstrip", "single_word"})
      takes_blanks = takes_blanks || added.value(flag, false);
  }
  if (takes_blanks)
    t.notices.emplace_back("llama.cpp ignores lstrip, rstrip and single_word of the added tokens");
}

std::vector<std::pair<std::string, std::string>> merges_of(const GgufJson& file) {
  std::vector<std::pair<std::string, std::string>> merges;
  for (const GgufJson& merge : file.at("model").at("merges")) {
    if (merge.is_array()) {
      merges.emplace_back(merge.at(0), merge.at(1));
      continue;
    }
    const auto text = merge.get<std::string>();
    const std::size_t blank = text.find(' ');
    merges.emplace_back(text.substr(0, blank), text.substr(blank + 1));
  }
  return merges;
}

void read_byte_level(const GgufJson& file, const std::string& where, GgufTokens& t) {
  t.model = "gpt2";
  bool nfc = false;
  for (const GgufJson& step : steps_of(file.value("normalizer", GgufJson()), "normalizers")) {
    if (step.value("type", "") != "NFC") refuse_step(where, "its normalizer " + shown_json(step));
    nfc = true;
  }
  const GgufPreTokenizer& splits = recognised(file, nfc, where);
  t.pre = splits.names.front();
  if (nfc)
    t.notices.emplace_back("llama.cpp does not normalise texts to NFC, but this tokenizer does");
  for (const auto& [left, right] : merges_of(file)) t.merges.push_back(left + " " + right);
}

bool marks_spaces(const GgufJson& pattern) {
  return pattern.is_object() && pattern.value("String", "") == " ";
}

/// Whether texts get a space in front; refuses steps that SentencePiece has none like.
bool read_space_prefix(const GgufJson& file, const std::string& where) {
  bool prefix = false;
  for (const GgufJson& step : steps_of(file.value("normalizer", GgufJson()), "normalizers")) {
    const std::string type = step.value("type", "");
    const bool prepends = type == "Prepend" && step.value("prepend", "") == kSpaceMark;
    const bool replaces = type == "Replace" && marks_spaces(step.value("pattern", GgufJson())) &&
                          step.value("content", "") == kSpaceMark;
    if (!prepends && !replaces) refuse_step(where, "its normalizer " + shown_json(step));
    prefix = prefix || prepends;
  }
  for (const GgufJson& step : steps_of(file.value("pre_tokenizer", GgufJson()), "pretokenizers")) {
    const std::string type = step.value("type", "");
    const bool metaspace = type == "Metaspace" && step.value("replacement", "") == kSpaceMark;
    // Gemma's, which finds no space where the normalizer has marked them.
    const bool idle = type == "Split" && marks_spaces(step.value("pattern", GgufJson()));
    if (!metaspace && !idle) refuse_step(where, "its pre_tokenizer " + shown_json(step));
    if (metaspace)
      prefix = step.contains("prepend_scheme") ? step.value("prepend_scheme", "") != "never"
                                               : step.value("add_prefix_space", true);
  }
  return prefix;
}

/// SentencePiece merges neighbours that together are a token, the best score first: that is the
/// order of the merges where every token has all of its merges, one after the other.
void score_by_merges(const GgufJson& file, GgufTokens& t) {
  const auto merges = merges_of(file);
  std::unordered_map<std::string, std::pair<std::size_t, std::size_t>> ranks;  // first, how many
  std::size_t astray = 0;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    auto& [first, count] =
        ranks.try_emplace(merges[rank].first + merges[rank].second, rank, 0).first->second;
    if (first + count != rank) ++astray;
    ++count;
  }
  std::unordered_map<std::string_view, bool> normal;
  for (std::size_t id = 0; id < t.tokens.size(); ++id)
    if (t.types[id] == TokenType::normal) normal.emplace(t.tokens[id], true);
  t.scores.assign(t.tokens.size(), 0);
  for (std::size_t id = 0; id < t.tokens.size(); ++id) {
    const std::string& token = t.tokens[id];
    if (t.types[id] != TokenType::normal || token.empty()) continue;
    const auto found = ranks.find(token);
    const std::size_t rank = found == ranks.end() ? merges.size() : found->second.first;
    t.scores[id] = -static_cast<float>(rank);
    std::size_t splits = 0;
    for (std::size_t at = 1; at < token.size(); ++at)
      splits += normal.contains(std::string_view(token).substr(0, at)) &&
                        normal.contains(std::string_view(token).substr(at))
                    ? 1
                    : 0;
    const std::size_t has = found == ranks.end() ? 0 : found->second.second;
    astray += splits > has ? splits - has : 0;
  }
  if (astray > 0)
    t.notices.push_back(fmt::format(
        "llama.cpp merges tokens by scores: {} merges differ from this tokenizer.json's, so rare "
        "words may get other ids",
        astray));
}

bool is_byte_token(const std::string& token) {
  return token.size() == 6 && token.starts_with("<0x") && token.back() == '>';
}

void read_with_byte_fallback(const GgufJson& file, const std::string& where, GgufTokens& t) {
  t.model = "llama";
  t.add_space_prefix = read_space_prefix(file, where);
  const GgufJson unknown = file.at("model").value("unk_token", GgufJson());
  for (std::size_t id = 0; id < t.tokens.size(); ++id) {
    if (is_byte_token(t.tokens[id]) && t.types[id] == TokenType::normal)
      t.types[id] = TokenType::byte;
    if (unknown == t.tokens[id]) t.types[id] = TokenType::unknown;
  }
  score_by_merges(file, t);
}

}  // namespace

void GgufTokens::put(std::int32_t id, const std::string& token, TokenType type) {
  const auto at = static_cast<std::size_t>(id);
  if (at >= tokens.size()) {
    tokens.resize(at + 1);
    types.resize(at + 1, TokenType::unused);
  }
  tokens[at] = token;
  types[at] = type;
}

GgufTokens gguf_tokens_of_json(const std::string& json, const std::string& where) {
  const GgufJson file = parse_strict_json(json, where);
  GgufTokens t;
  put_vocabulary(file, t);
  put_added(file, t);
  if (file.at("model").value("byte_fallback", false))
    read_with_byte_fallback(file, where, t);
  else
    read_byte_level(file, where, t);
  return t;
}

}  // namespace focus
