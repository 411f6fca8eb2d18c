#include "data/gguf/gguf_tokenizer_export.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>

#include "autograd/base/check.h"
#include "data/files/json_reader.h"
#include "data/tokenizers/bpe_tokenizer.h"
#include "data/tokenizers/sentencepiece_model.h"

namespace focus {
namespace {

using SideFileMap = std::map<std::string, std::string>;

nlohmann::json side_json(const SideFileMap& files, const char* name, const std::string& where) {
  const auto file = files.find(name);
  if (file == files.end()) return nlohmann::json::object();
  return parse_strict_json(file->second, fmt::format("{}: {}", where, name));
}

std::int32_t id_of(const std::string& text, const std::string& where) {
  std::int32_t id = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || end != text.data() + text.size() || id < 0 || id >= kMaxIds)
    fail("{}: {}: added_tokens_decoder: {} is not an id from 0 to {}", where, kTokenizerConfig,
         json_quoted(text), kMaxIds - 1);
  return id;
}

/// Tokens in separate files beside a vocabulary.
void put_tokens_beside(const SideFileMap& files, const std::string& where, GgufTokens& t) {
  const nlohmann::json added = side_json(files, "added_tokens.json", where);
  for (const auto& [token, id] : added.items())
    t.put(static_cast<std::int32_t>(JsonView(id, where + ": added_tokens.json").integer(kMaxIds)),
          token, TokenType::control);
  const nlohmann::json decoder = side_json(files, kTokenizerConfig, where)
                                     .value("added_tokens_decoder", nlohmann::json::object());
  for (const auto& [id, token] : decoder.items()) {
    const auto number = id_of(id, where);
    const auto at = static_cast<std::size_t>(number);
    const bool known = at < t.types.size() && t.types[at] != TokenType::unused;
    const bool special = token.value("special", false);
    // What a vocabulary says of its own tokens, unknown and byte among them, stays.
    if (known && (t.types[at] != TokenType::normal || !special)) continue;
    t.put(number, token.value("content", ""),
          special ? TokenType::control : TokenType::user_defined);
  }
}

/// GPT-2's two files, as the tokenizer.json that says the same.
GgufTokens tokens_of_gpt2(const Tokenizer& tokenizer, const SideFileMap& side_files,
                          const std::string& where) {
  const auto bytes_of = [&](std::initializer_list<const char*> names) -> const std::string& {
    for (const char* name : names)
      if (const auto file = tokenizer.files().find(name); file != tokenizer.files().end())
        return file->second;
    fail("{}: no vocabulary among the tokenizer's files", where);
  };
  nlohmann::json merges = nlohmann::json::array();
  const std::string& lines = bytes_of({"merges.txt", "vocab.bpe"});
  for (std::size_t begin = 0; begin < lines.size();) {
    const std::size_t end = std::min(lines.find('\n', begin), lines.size());
    std::string line = lines.substr(begin, end - begin);
    if (line.ends_with('\r')) line.pop_back();
    const bool version = begin == 0 && line.starts_with("#version");
    if (!line.empty() && !version) merges.push_back(line);
    begin = end + 1;
  }
  const nlohmann::json json = {
      {"model",
       {{"vocab", parse_strict_json(bytes_of({"vocab.json", "encoder.json"}), where)},
        {"merges", std::move(merges)}}},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}}};
  GgufTokens t = gguf_tokens_of_json(json.dump(), where);
  for (std::size_t id = 0; id < t.tokens.size(); ++id)
    if (tokenizer.is_special(static_cast<std::int32_t>(id))) t.types[id] = TokenType::control;
  put_tokens_beside(side_files, where, t);
  return t;
}

/// User-defined pieces are written as in a text.
std::string with_spaces(std::string_view text) {
  constexpr std::string_view kMark = "\xE2\x96\x81";
  std::string spaces;
  for (std::size_t at = 0; at < text.size();) {
    const bool mark = text.substr(at).starts_with(kMark);
    spaces += mark ? ' ' : text[at];
    at += mark ? kMark.size() : 1;
  }
  return spaces;
}

GgufTokens tokens_of_sentencepiece(const Tokenizer& tokenizer, const SideFileMap& side_files,
                                   const std::string& where) {
  const std::string& model = tokenizer.files().at("tokenizer.model");
  const SentencePieceFile file = read_sentencepiece_model(model, where);
  if (!file.bpe)
    fail(
        "{}: a SentencePiece model that is not BPE cannot be represented in this kind of GGUF file",
        where);
  GgufTokens t;
  t.model = "llama";
  t.add_space_prefix = file.parts.add_dummy_prefix;
  if (file.normalizes)
    t.notices.emplace_back("llama.cpp does not normalise texts like this SentencePiece model");
  std::int32_t id = 0;
  for (const SentencePieceParts::Piece& piece : file.parts.pieces) {
    const bool defined = piece.type == TokenType::user_defined;
    t.put(id++, defined ? with_spaces(piece.text) : piece.text, piece.type);
    t.scores.push_back(piece.score);
  }
  put_tokens_beside(side_files, where, t);
  t.scores.resize(t.tokens.size(), 0);
  return t;
}

GgufTokens tokens_of(const Tokenizer& tokenizer, const SideFileMap& side_files,
                     const std::string& where) {
  if (tokenizer.kind() == "sentencepiece")
    return tokens_of_sentencepiece(tokenizer, side_files, where);
  if (tokenizer.kind() == "gpt2") return tokens_of_gpt2(tokenizer, side_files, where);
  const auto file = tokenizer.files().find("tokenizer.json");
  if (file == tokenizer.files().end())
    fail("{}: a tokenizer of kind \"{}\" cannot be represented in a GGUF file", where,
         tokenizer.kind());
  return gguf_tokens_of_json(file->second, where);
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

class SpecialTokens {
 public:
  SpecialTokens(const Tokenizer& tokenizer, const SideFileMap& files, const std::string& where,
                const GgufTokens& tokens)
      : tokenizer_(tokenizer),
        config_(side_json(files, kTokenizerConfig, where)),
        map_(side_json(files, "special_tokens_map.json", where)),
        generation_(side_json(files, "generation_config.json", where)),
        tokens_(tokens) {}

  /// Adds the ids and whether texts get BOS and EOS.
  std::vector<std::string> add(GgufKeys& keys) const {
    const auto bos = named("bos_token", tokenizer_.bos_id());
    const auto eos = named("eos_token", tokenizer_.eos_id());
    std::optional<std::int32_t> unknown;
    const auto found = std::ranges::find(tokens_.types, TokenType::unknown);
    if (found != tokens_.types.end())
      unknown = static_cast<std::int32_t>(found - tokens_.types.begin());
    put(keys, "bos_token_id", bos);
    put(keys, "eos_token_id", eos);
    add_further_ends(keys, eos);
    put(keys, "unknown_token_id", named("unk_token", unknown));
    put(keys, "padding_token_id", named("pad_token", std::nullopt));
    return add_around(keys, bos, eos);
  }

 private:
  /// The token that tokenizer_config.json or special_tokens_map.json names so.
  std::optional<std::int32_t> named(const char* key, std::optional<std::int32_t> otherwise) const {
    for (const nlohmann::json* json : {&config_, &map_}) {
      const auto token = json->find(key);
      if (token == json->end() || token->is_null()) continue;
      const std::string text =
          token->is_object() ? token->value("content", "") : token->get<std::string>();
      const auto found = std::ranges::find(tokens_.tokens, text);
      if (found != tokens_.tokens.end())
        return static_cast<std::int32_t>(found - tokens_.tokens.begin());
    }
    return otherwise;
  }

  void put(GgufKeys& keys, const char* name, std::optional<std::int32_t> id) const {
    if (id && static_cast<std::size_t>(*id) < tokens_.tokens.size())
      keys.u32(fmt::format("tokenizer.ggml.{}", name), static_cast<std::uint32_t>(*id));
  }

  /// Ids that end a generation beside EOS: llama.cpp has two more places.
  void add_further_ends(GgufKeys& keys, std::optional<std::int32_t> eos) const {
    const nlohmann::json ends = generation_.value("eos_token_id", nlohmann::json());
    std::vector<const char*> places = {"eom_token_id", "eot_token_id"};
    for (const nlohmann::json& end : ends.is_array() ? ends : nlohmann::json::array({ends})) {
      if (!end.is_number_unsigned() || end == eos.value_or(-1) || places.empty()) continue;
      put(keys, places.back(), end.get<std::int32_t>());
      places.pop_back();
    }
  }

  std::vector<std::string> add_around(GgufKeys& keys, std::optional<std::int32_t> bos,
                                      std::optional<std::int32_t> eos) const {
    std::vector<std::string> notices;
    const std::vector<std::int32_t> plain = tokenizer_.encode("a");
    const std::vector<std::int32_t> all = tokenizer_.encode_with_special("a");
    const auto text = std::search(all.begin(), all.end(), plain.begin(), plain.end());
    const std::vector<std::int32_t> before(all.begin(), text);
    const std::vector<std::int32_t> after(
        text + std::min<std::ptrdiff_t>(std::ssize(plain), all.end() - text), all.end());
    const auto add = [&](const char* name, const std::vector<std::int32_t>& around,
                         std::optional<std::int32_t> id) {
      const bool one = around.size() == 1 && around.front() == id;
      if (!around.empty() && !one)
        notices.push_back(
            fmt::format("llama.cpp adds {} to texts, but this tokenizer adds other tokens", name));
      keys.flag(fmt::format("tokenizer.ggml.add_{}_token", name), !around.empty());
    };
    add("bos", before, bos);
    add("eos", after, eos);
    return notices;
  }

  const Tokenizer& tokenizer_;
  nlohmann::json config_, map_, generation_;
  const GgufTokens& tokens_;
};

/// The default template is in a file of its own or in tokenizer_config.json, where there may be
/// several by name.
void add_chat_templates(const SideFileMap& files, const std::string& where, GgufKeys& keys) {
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
                                            const SideFileMap& side_files, std::int32_t rows,
                                            const std::string& where, GgufKeys& keys) {
  if (tokenizer == nullptr || tokenizer->kind() == "bytes") {
    keys.text("tokenizer.ggml.model", "none");
    return {tokenizer == nullptr
                ? "no tokenizer in the model, so none in the file: llama.cpp can only read ids"
                : "a tokenizer of kind \"bytes\" cannot be represented in a GGUF file: llama.cpp "
                  "can only read ids"};
  }
  GgufTokens t = tokens_of(*tokenizer, side_files, where);
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
  std::vector<std::string> notices = SpecialTokens(*tokenizer, side_files, where, t).add(keys);
  notices.insert(notices.begin(), t.notices.begin(), t.notices.end());
  add_chat_templates(side_files, where, keys);
  return notices;
}

}  // namespace focus
