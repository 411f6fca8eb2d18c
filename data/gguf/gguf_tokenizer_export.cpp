#include <algorithm>
#include <unordered_map>

#include "autograd/base/check.h"
#include "data/files/json_reader.h"
#include "data/files/utf8.h"
#include "data/gguf/gguf_tokenizer.h"
#include "data/gguf/gguf_vocabulary.h"
#include "data/tokenizers/pattern.h"
#include "data/tokenizers/tokenizer_config.h"

namespace focus {

namespace {

/// What `tokenizer.ggml.*` says of tokens and merges.
struct GgufTokens {
  std::string model;                // "gpt2" or "llama"
  std::string pre;                  // of gpt2: llama.cpp's word for how texts are split
  std::vector<std::string> tokens;  // by id; "": unused
  std::vector<TokenType> types;     // as many
  std::vector<float> scores;        // as many; of llama
  std::vector<std::string> merges;  // "a b"; of gpt2
  bool add_space_prefix = false;    // of llama
  std::vector<std::string> notices;

  /// Makes room for `id`.
  void put(std::int32_t id, const std::string& token, TokenType type) {
    const auto at = static_cast<std::size_t>(id);
    if (at >= tokens.size()) {
      tokens.resize(at + 1);
      types.resize(at + 1, TokenType::unused);
    }
    tokens[at] = token;
    types[at] = type;
  }
};

using GgufJson = nlohmann::json;

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
  for (const auto& [left, right] : read_merges(JsonView(file, where).at("model").at("merges")))
    t.merges.push_back(left + " " + right);
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
void score_by_merges(const JsonView& model, GgufTokens& t) {
  const auto merges = read_merges(model.at("merges"));
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

void read_with_byte_fallback(const GgufJson& file, const std::string& where, GgufTokens& t) {
  t.model = "llama";
  t.add_space_prefix = read_space_prefix(file, where);
  const GgufJson unknown = file.at("model").value("unk_token", GgufJson());
  for (std::size_t id = 0; id < t.tokens.size(); ++id) {
    const std::string& token = t.tokens[id];
    if (t.types[id] == TokenType::normal && token.size() == 6 && token.starts_with("<0x") &&
        token.back() == '>')
      t.types[id] = TokenType::byte;
    if (unknown == token) t.types[id] = TokenType::unknown;
  }
  score_by_merges(JsonView(file, where).at("model"), t);
}

/// From a tokenizer.json: one of byte-level BPE is llama.cpp's gpt2, one with byte_fallback its
/// llama. Throws std::runtime_error naming the step that llama.cpp has no form of.
GgufTokens tokens_of_json(const GgufJson& file, const std::string& where) {
  GgufTokens t;
  for (const auto& [token, id] : file.at("model").at("vocab").items())
    t.put(id.get<std::int32_t>(), token, TokenType::normal);
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
  if (file.at("model").value("byte_fallback", false))
    read_with_byte_fallback(file, where, t);
  else
    read_byte_level(file, where, t);
  return t;
}

nlohmann::json side_json(const TokenizerFiles& files, const char* name, const std::string& where) {
  const auto file = files.find(name);
  if (file == files.end()) return nlohmann::json::object();
  return parse_strict_json(file->second, fmt::format("{}: {}", where, name));
}

/// Tokens in separate files beside a vocabulary. What that says of its own, unknown and byte among
/// them, stays.
void put_tokens_beside(const TokenizerConfig& config, GgufTokens& t) {
  for (const AddedToken& token : config.added) {
    const auto at = static_cast<std::size_t>(token.id);
    const bool known = at < t.types.size() && t.types[at] != TokenType::unused;
    if (known && (t.types[at] != TokenType::normal || !token.special)) continue;
    t.put(token.id, token.content, token.special ? TokenType::control : TokenType::user_defined);
  }
}

GgufTokens tokens_of_sentencepiece(const Tokenizer& tokenizer, const TokenizerConfig& config,
                                   const std::string& where) {
  const SentencePieceModel model =
      read_sentencepiece_model(tokenizer.files().at("tokenizer.model"), where);
  if (!model.bpe)
    fail(
        "{}: a SentencePiece model that is not BPE cannot be represented in this kind of GGUF file",
        where);
  GgufTokens t;
  t.model = "llama";
  t.add_space_prefix = model.add_dummy_prefix;
  if (model.normalizes)
    t.notices.emplace_back("llama.cpp does not normalise texts like this SentencePiece model");
  std::int32_t id = 0;
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    const bool defined = piece.type == TokenType::user_defined;  // written as in a text
    t.put(id++, defined ? replaced(piece.text, kSpaceMark, " ") : piece.text, piece.type);
    t.scores.push_back(piece.score);
  }
  put_tokens_beside(config, t);
  t.scores.resize(t.tokens.size(), 0);
  return t;
}

GgufTokens tokens_of(const Tokenizer& tokenizer, const TokenizerConfig& config,
                     const std::string& where) {
  if (tokenizer.kind() == "sentencepiece") return tokens_of_sentencepiece(tokenizer, config, where);
  if (tokenizer.kind() == "gpt2") {
    GgufTokens t = tokens_of_json(gpt2_as_json(tokenizer.files(), where), where);
    for (std::size_t id = 0; id < t.tokens.size(); ++id)
      if (tokenizer.is_special(static_cast<std::int32_t>(id))) t.types[id] = TokenType::control;
    put_tokens_beside(config, t);
    return t;
  }
  const auto file = tokenizer.files().find("tokenizer.json");
  if (file == tokenizer.files().end())
    fail("{}: a tokenizer of kind \"{}\" cannot be represented in a GGUF file", where,
         tokenizer.kind());
  return tokens_of_json(parse_strict_json(file->second, where), where);
}

/// As many tokens as the embedding has rows: llama.cpp asks for that.
void fit_to_rows(std::int32_t rows, GgufTokens& t) {
  const auto size = static_cast<std::size_t>(rows);
  const std::size_t known = t.tokens.size();
  if (known > size)
    t.notices.push_back(
        fmt::format("{} ids beyond the embedding's {} rows are left out", known - size, size));
  t.tokens.resize(size);
  t.types.resize(size, TokenType::unused);
  if (t.model == "llama") t.scores.resize(size, 0);
  std::unordered_map<std::string_view, bool> there;
  for (std::size_t id = 0; id < size; ++id) {
    if (t.tokens[id].empty()) {
      t.tokens[id] = fmt::format("[PAD{}]", id);
      t.types[id] = TokenType::unused;
    }
    there.emplace(t.tokens[id], true);
  }
  if (known > size)
    std::erase_if(t.merges, [&](const std::string& merge) {
      const std::size_t blank = merge.find(' ', 1);
      return !there.contains(merge.substr(0, blank) + merge.substr(blank + 1));
    });
}

/// Adds the ids of special tokens, and whether texts get BOS and EOS.
void add_special_tokens(const Tokenizer& tokenizer, const TokenizerConfig& config,
                        const nlohmann::json& generation, GgufTokens& t, GgufKeys& keys) {
  const auto id_of = [](const auto& all, const auto& wanted) -> std::optional<std::int32_t> {
    const auto found = std::ranges::find(all, wanted);
    if (found == all.end()) return std::nullopt;
    return static_cast<std::int32_t>(found - all.begin());
  };
  const auto named = [&](const char* key, std::optional<std::int32_t> otherwise) {
    const auto id =
        config.id_of(key, otherwise, [&](const std::string& x) { return id_of(t.tokens, x); });
    return id ? id : otherwise;
  };
  const auto put = [&](const char* name, std::optional<std::int32_t> id) {
    if (id && static_cast<std::size_t>(*id) < t.tokens.size())
      keys.u32(fmt::format("tokenizer.ggml.{}", name), static_cast<std::uint32_t>(*id));
  };
  const auto bos = named("bos_token", tokenizer.bos_id());
  const auto eos = named("eos_token", tokenizer.eos_id());
  put("bos_token_id", bos);
  put("eos_token_id", eos);
  // Ids that end a generation beside EOS: llama.cpp has two more places.
  const nlohmann::json ends = generation.value("eos_token_id", nlohmann::json());
  std::vector<const char*> places = {"eom_token_id", "eot_token_id"};
  for (const nlohmann::json& end : ends.is_array() ? ends : nlohmann::json::array({ends})) {
    if (!end.is_number_unsigned() || end == eos.value_or(-1) || places.empty()) continue;
    put(places.back(), end.get<std::int32_t>());
    places.pop_back();
  }
  put("unknown_token_id", named("unk_token", id_of(t.types, TokenType::unknown)));
  put("padding_token_id", named("pad_token", std::nullopt));
  const auto add_end = [&](const char* name, std::span<const std::int32_t> around,
                           std::optional<std::int32_t> id) {
    if (!around.empty() && (around.size() > 1 || around.front() != id))
      t.notices.push_back(
          fmt::format("llama.cpp adds {} to texts, but this tokenizer adds other tokens", name));
    keys.flag(fmt::format("tokenizer.ggml.add_{}_token", name), !around.empty());
  };
  add_end("bos", tokenizer.prefix(), bos);
  add_end("eos", tokenizer.suffix(), eos);
}

/// The default template is in a file of its own or in tokenizer_config.json, where there may be
/// several by name.
void add_chat_templates(const TokenizerFiles& files, const std::string& where, GgufKeys& keys) {
  constexpr const char* kKey = "tokenizer.chat_template";
  const auto file = files.find("chat_template.jinja");
  if (file != files.end()) keys.text(kKey, file->second);
  const nlohmann::json config = side_json(files, kTokenizerConfig, where);
  const nlohmann::json chat = config.value("chat_template", nlohmann::json());
  if (chat.is_string() && !keys.has(kKey)) keys.text(kKey, chat.get<std::string>());
  if (!chat.is_array()) return;
  std::vector<std::string> names;
  for (const nlohmann::json& each : chat) {
    const std::string name = each.value("name", "");
    const std::string key = name == "default" ? kKey : fmt::format("{}.{}", kKey, name);
    if (keys.has(key)) continue;
    keys.text(key, each.value("template", ""));
    if (name != "default") names.push_back(name);
  }
  if (!names.empty()) keys.texts("tokenizer.chat_templates", names);
}

}  // namespace

std::vector<std::string> add_gguf_tokenizer(const Tokenizer* tokenizer,
                                            const TokenizerFiles& side_files, std::int32_t rows,
                                            const std::string& where, GgufKeys& keys) {
  if (tokenizer == nullptr || tokenizer->kind() == "bytes") {
    keys.text("tokenizer.ggml.model", "none");
    return {tokenizer == nullptr
                ? "no tokenizer in the model, so none in the file: llama.cpp can only read ids"
                : "a tokenizer of kind \"bytes\" cannot be represented in a GGUF file: llama.cpp "
                  "can only read ids"};
  }
  const TokenizerConfig config = read_tokenizer_config(side_files, where);
  GgufTokens t = tokens_of(*tokenizer, config, where);
  fit_to_rows(rows, t);
  std::vector<std::int32_t> types;
  for (const TokenType type : t.types) types.push_back(static_cast<std::int32_t>(type));
  keys.text("tokenizer.ggml.model", t.model);
  keys.text("tokenizer.ggml.pre", t.pre.empty() ? "default" : t.pre);
  keys.texts("tokenizer.ggml.tokens", t.tokens);
  keys.i32s("tokenizer.ggml.token_type", types);
  if (t.model == "llama") {
    keys.f32s("tokenizer.ggml.scores", t.scores);
    keys.flag("tokenizer.ggml.add_space_prefix", t.add_space_prefix);
  } else {
    keys.texts("tokenizer.ggml.merges", t.merges);
  }
  add_special_tokens(*tokenizer, config, side_json(side_files, "generation_config.json", where), t,
                     keys);
  add_chat_templates(side_files, where, keys);
  return std::move(t.notices);
}

}  // namespace focus
