#include "data/gguf/gguf_tokenizer.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "autograd/base/check.h"
#include "data/files/json_reader.h"
#include "data/files/utf8.h"
#include "data/gguf/gguf_vocabulary.h"
#include "data/tokenizers/tokenizer_config.h"
#include "data/tokenizers/tokenizer_steps.h"

namespace focus {
namespace {

using Json = nlohmann::json;

/// "a b": split at the first space after the first character, for a token may begin with one.
Json split_gguf_merge(const std::string& merge, std::size_t rank, const std::string& where) {
  const std::size_t blank = merge.find(' ', 1);
  if (blank == std::string::npos || blank + 1 == merge.size())
    fail("{}: tokenizer.ggml.merges: merge {} must be two tokens separated by a blank, found {}",
         where, rank, json_quoted(merge));
  return Json::array({merge.substr(0, blank), merge.substr(blank + 1)});
}

/// Puts the tokens and their merges into a tokenizer.json's model.
void fill_bpe_model(const GgufMetadata& metadata, const GgufVocabulary& v, Json& model) {
  const auto merges = metadata.texts("tokenizer.ggml.merges");
  if (!merges) fail("{}: a tokenizer of model gpt2 needs tokenizer.ggml.merges", v.where);
  Json vocabulary = Json::object();
  for (std::size_t id = 0; id < v.tokens.size(); ++id) {
    // Rows of the embedding that no text reaches are no tokens.
    if (v.types[id] != TokenType::unused && !v.tokens[id].empty()) vocabulary[v.tokens[id]] = id;
  }
  Json pairs = Json::array();
  for (std::size_t rank = 0; rank < merges->size(); ++rank) {
    if ((*merges)[rank].empty() || !is_valid_utf8((*merges)[rank]))
      fail("{}: tokenizer.ggml.merges: merge {} is empty or not UTF-8", v.where, rank);
    pairs.push_back(split_gguf_merge((*merges)[rank], rank, v.where));
  }
  model["vocab"] = std::move(vocabulary);
  model["merges"] = std::move(pairs);
}

Json added_tokens(const GgufVocabulary& v) {
  Json added = Json::array();
  for (std::size_t id = 0; id < v.tokens.size(); ++id) {
    const bool control = v.types[id] == TokenType::control;
    if ((!control && v.types[id] != TokenType::user_defined) || v.tokens[id].empty()) continue;
    added.push_back({{"id", id},
                     {"content", v.tokens[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", control}});
  }
  return added;
}

/// TemplateProcessing, where BOS or EOS is put around texts; null elsewhere.
Json post_processor(const GgufVocabulary& v, bool add_bos, bool add_eos) {
  if (!add_bos && !add_eos) return nullptr;
  Json special = Json::object();
  const auto token = [&](std::int32_t id, int type) {
    const std::string& text = v.text(id);
    special[text] = {{"id", text}, {"ids", Json::array({id})}, {"tokens", Json::array({text})}};
    return Json{{"SpecialToken", {{"id", text}, {"type_id", type}}}};
  };
  const auto around = [&](const char* name, int type) {
    Json items = Json::array();
    if (add_bos) items.push_back(token(v.bos_id.value(), type));
    items.push_back({{"Sequence", {{"id", name}, {"type_id", type}}}});
    if (add_eos) items.push_back(token(v.eos_id.value(), type));
    return items;
  };
  const Json single = around("A", 0);
  Json pair = single;
  for (Json& item : around("B", 1)) pair.push_back(std::move(item));
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", std::move(pair)},
          {"special_tokens", std::move(special)}};
}

/// Whether a token that the file names (or does not) is put beside texts.
bool is_added(std::optional<bool> said, bool otherwise, std::optional<std::int32_t> id,
              const char* name, const std::string& where) {
  if (!said.value_or(otherwise)) return false;
  if (!id && said)
    fail("{}: tokenizer.ggml.add_{}_token is true, but no {}_token_id names a token", where, name,
         name);
  return id.has_value();
}

std::unique_ptr<Tokenizer> byte_level_tokenizer(const GgufMetadata& metadata) {
  const std::string pre = metadata.text("tokenizer.ggml.pre").value_or("default");
  const GgufPreTokenizer& splits = gguf_pre_tokenizer(pre, metadata.where());
  const GgufVocabulary v = read_gguf_vocabulary(metadata);
  const bool add_bos = is_added(v.add_bos, splits.adds_bos, v.bos_id, "bos", v.where);
  const bool add_eos = is_added(v.add_eos, false, v.eos_id, "eos", v.where);
  Json file = Json::parse(kByteLevelFile);
  file["added_tokens"] = added_tokens(v);
  if (splits.nfc) file["normalizer"] = {{"type", "NFC"}};
  file["pre_tokenizer"] = splits.steps;
  file["post_processor"] = post_processor(v, add_bos, add_eos);
  file["decoder"]["add_prefix_space"] = true;
  file["model"]["ignore_merges"] = splits.ignore_merges;
  fill_bpe_model(metadata, v, file["model"]);
  const TokenizerFiles files = {
      {"tokenizer.json", file.dump()},
      {kTokenizerConfig,
       gguf_tokenizer_config(metadata, v, "PreTrainedTokenizerFast",
                             {{"add_bos_token", add_bos}, {"add_eos_token", add_eos}})}};
  return make_tokenizer("tokenizer.json", files, v.where);
}

/// The unknown token: SentencePiece requires exactly one.
std::int32_t unknown_token(const GgufVocabulary& v) {
  if (v.unk_id) return *v.unk_id;
  const auto found = std::ranges::find(v.types, TokenType::unknown);
  if (found != v.types.end()) return static_cast<std::int32_t>(found - v.types.begin());
  if (v.types[0] == TokenType::control && v.bos_id != 0 && v.eos_id != 0) return 0;
  fail("{}: a tokenizer of model llama needs an unknown token (tokenizer.ggml.unknown_token_id)",
       v.where);
}

/// llama.cpp's default ids of model llama, where the file names none.
void add_default_ends(GgufVocabulary& v, const GgufMetadata& metadata) {
  const auto put = [&](std::optional<std::int32_t>& id, const char* key, std::int32_t otherwise) {
    const bool control = static_cast<std::size_t>(otherwise) < v.types.size() &&
                         v.type(otherwise) == TokenType::control;
    if (!id && !metadata.has(key) && control) id = otherwise;
  };
  put(v.bos_id, "tokenizer.ggml.bos_token_id", 1);
  put(v.eos_id, "tokenizer.ggml.eos_token_id", 2);
}

std::vector<double> read_scores(const GgufMetadata& metadata, const GgufVocabulary& v) {
  auto scores = metadata.numbers("tokenizer.ggml.scores");
  if (!scores) fail("{}: a tokenizer of model llama needs tokenizer.ggml.scores", v.where);
  if (scores->size() != v.tokens.size())
    fail("{}: tokenizer.ggml.scores has {} values for {} tokens", v.where, scores->size(),
         v.tokens.size());
  for (std::size_t id = 0; id < scores->size(); ++id) {
    if (!std::isfinite((*scores)[id]))
      fail("{}: tokenizer.ggml.scores of token {} is {}", v.where, id, (*scores)[id]);
  }
  return *std::move(scores);
}

/// llama.cpp finds them by their names, <0x00> to <0xFF>, whatever type a converter gave them.
void find_byte_tokens(GgufVocabulary& v) {
  std::set<std::string> missing;
  for (int byte = 0; byte < 256; ++byte) missing.insert(fmt::format("<0x{:02X}>", byte));
  std::vector<std::size_t> found;
  for (std::size_t id = 0; id < v.tokens.size(); ++id)
    if (missing.erase(v.tokens[id]) > 0) found.push_back(id);
  if (missing.empty())
    for (const std::size_t id : found) v.types[id] = TokenType::byte;
}

/// Changes the vocabulary's tokens to what the model's pieces are.
SentencePieceModel sentencepiece_model(const GgufMetadata& metadata, GgufVocabulary& v) {
  const std::vector<double> scores = read_scores(metadata, v);
  SentencePieceModel parts;
  parts.unk_id = unknown_token(v);
  add_default_ends(v, metadata);
  find_byte_tokens(v);
  std::size_t bytes = 0;
  for (std::size_t id = 0; id < v.tokens.size(); ++id) {
    SentencePieceModel::Piece piece = {v.tokens[id], static_cast<float>(scores[id]), v.types[id]};
    // They are written as in a text; the library looks for them after spaces have become marks.
    if (piece.type == TokenType::user_defined) piece.text = replaced(piece.text, " ", kSpaceMark);
    if (piece.text.empty()) piece = {fmt::format("[EMPTY_{}]", id), piece.score, TokenType::unused};
    if (piece.type == TokenType::unknown) piece.type = TokenType::control;
    if (static_cast<std::int32_t>(id) == parts.unk_id) piece.type = TokenType::unknown;
    if (piece.type == TokenType::byte) ++bytes;
    v.tokens[id] = piece.text;
    parts.pieces.push_back(std::move(piece));
  }
  if (bytes != 0 && bytes != 256)
    fail("{}: only {} of the 256 byte tokens <0x00> to <0xFF> exist: the file is damaged", v.where,
         bytes);
  parts.bos_id = v.bos_id;
  parts.eos_id = v.eos_id;
  parts.pad_id = v.pad_id;
  parts.byte_fallback = bytes == 256;
  parts.add_dummy_prefix = metadata.flag("tokenizer.ggml.add_space_prefix").value_or(true);
  return parts;
}

std::unique_ptr<Tokenizer> sentencepiece_tokenizer(const GgufMetadata& metadata) {
  GgufVocabulary v = read_gguf_vocabulary(metadata);
  const SentencePieceModel parts = sentencepiece_model(metadata, v);
  v.unk_id = parts.unk_id;
  const bool add_bos = is_added(v.add_bos, true, v.bos_id, "bos", v.where);
  const bool add_eos = is_added(v.add_eos, false, v.eos_id, "eos", v.where);
  // llama.cpp does what the model file says, before every part of a text between special tokens;
  // transformers' LlamaTokenizer does not.
  const bool gemma = metadata.text("general.architecture").value_or("").starts_with("gemma");
  const TokenizerFiles files = {
      {"tokenizer.model", write_sentencepiece_model(parts)},
      {kTokenizerConfig,
       gguf_tokenizer_config(metadata, v, gemma ? "GemmaTokenizer" : "PreTrainedTokenizerFast",
                             {{"add_bos_token", add_bos},
                              {"add_eos_token", add_eos},
                              {"add_prefix_space", parts.add_dummy_prefix}})}};
  return make_tokenizer("sentencepiece", files, v.where);
}

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_of(const GgufMetadata& metadata) {
  const auto model = metadata.text("tokenizer.ggml.model");
  if (!model || *model == "none" || *model == "no_vocab") return nullptr;
  if (*model == "gpt2") return byte_level_tokenizer(metadata);
  if (*model == "llama") return sentencepiece_tokenizer(metadata);
  fail(
      "{}: its tokenizer has model {} (tokenizer.ggml.model), but only gpt2 and llama are "
      "supported; name the model's tokenizer.json or tokenizer.model with --tokenizer FILE",
      metadata.where(), json_quoted(*model));
}

}  // namespace focus
