#include <algorithm>
#include <mutex>
#include <set>
#include <sstream>

#include "autograd/base/check.h"
#include "data/files/json_reader.h"
#include "data/files/notice.h"
#include "data/files/utf8.h"
#include "data/tokenizers/byte_level_bpe.h"
#include "data/tokenizers/tokenizer_config.h"
#include "data/tokenizers/tokenizer_steps.h"

namespace focus {
namespace {

constexpr const char* kGpt2End = "<|endoftext|>";

/// The steps of a hostile file may each lengthen what the one before made. Published ones stay far
/// below: the most is NFKD's, where one character becomes eighteen.
void check_growth(std::size_t before, std::size_t after) {
  constexpr std::size_t kMaxGrowth = 32, kMinBytes = 1024;
  if (after > kMinBytes && after / kMaxGrowth > before)
    fail("the tokenizer's steps produce {} bytes from {}: do not trust its file", after, before);
}

/// What a BPE tokenizer is made of; encode() applies it from top to bottom.
struct Parts {
  std::vector<AddedToken> added_tokens;
  std::vector<Normalizer> normalizers;
  std::vector<PreTokenizer> pre_tokenizers;
  Bpe::Vocabulary vocabulary;  // of the model, without added tokens
  Bpe::Merges merges;
  BpeOptions options;
  TextEnds ends;
  std::vector<Decoder> decoders;
  std::optional<std::int32_t> bos_id, eos_id;
};

std::string normalized_content(const Parts& parts, const AddedToken& token) {
  std::string content = token.content;
  if (token.normalized)
    for (const Normalizer& normalizer : parts.normalizers) normalizer(content);
  return content;
}

std::vector<AddedToken> added_tokens_with(const Parts& parts, bool normalized) {
  std::vector<AddedToken> tokens;
  for (AddedToken token : parts.added_tokens) {
    if (token.normalized != normalized) continue;
    token.content = normalized_content(parts, token);
    if (!token.content.empty()) tokens.push_back(std::move(token));
  }
  return tokens;
}

class BpeTokenizer : public Tokenizer {
 public:
  BpeTokenizer(std::string kind, const TokenizerFiles& files, Parts parts, const std::string& where)
      : Tokenizer(std::move(kind), files),
        parts_(std::move(parts)),
        verbatim_(added_tokens_with(parts_, false)),
        normalized_(added_tokens_with(parts_, true)),
        model_(std::move(parts_.vocabulary), parts_.merges, parts_.options, where) {
    parts_.merges = {};
    for (const auto& [token, id] : model_.vocabulary()) name_id(id, token);
    // Its text is what it was found as: that of a normalized token is normalized.
    for (const AddedToken& token : parts_.added_tokens)
      name_id(token.id, normalized_content(parts_, token));
    for (const auto& ids : {parts_.ends.prefix, parts_.ends.suffix}) {
      for (const std::int32_t id : ids)
        if (!tokens_.contains(id))
          fail("{}: the template adds id {}, which no token has", where, id);
    }
  }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    const std::string valid = replace_invalid_utf8(text);
    const std::scoped_lock lock(mutex_);
    std::vector<std::int32_t> ids;
    const auto put = [&](std::int32_t id) { ids.push_back(id); };
    verbatim_.split(
        valid,
        [&](std::string_view part) {
          std::string segment(part);
          for (const Normalizer& normalizer : parts_.normalizers) {
            normalizer(segment);
            check_growth(part.size(), segment.size());
          }
          const bool at_start = part.data() == valid.data();
          normalized_.split(
              segment,
              [&](std::string_view piece) {
                encode_piece(piece, at_start && piece.data() == segment.data(), ids);
              },
              put);
        },
        put);
    return ids;
  }

  std::span<const std::int32_t> prefix() const override { return parts_.ends.prefix; }
  std::span<const std::int32_t> suffix() const override { return parts_.ends.suffix; }

  std::int32_t vocab_size() const override { return vocab_size_; }
  std::optional<std::int32_t> bos_id() const override { return parts_.bos_id; }
  std::optional<std::int32_t> eos_id() const override { return parts_.eos_id; }
  bool is_special(std::int32_t id) const override {
    return Tokenizer::is_special(id) ||
           std::ranges::any_of(parts_.added_tokens, [id](const AddedToken& token) {
             return token.special && token.id == id;
           });
  }

 private:
  void name_id(std::int32_t id, const std::string& token) {
    tokens_[id] = token;
    vocab_size_ = std::max(vocab_size_, id + 1);
  }

  void encode_piece(std::string_view piece, bool at_start, std::vector<std::int32_t>& ids) const {
    const std::size_t steps = parts_.pre_tokenizers.size();
    // What each step was handed of this piece so far. Parts count too, not their bytes alone: steps
    // that split and steps that prefix can between them double the number of parts.
    std::vector<std::size_t> handed(steps + 1);
    std::vector<PieceSink> sinks(steps + 1);
    for (std::size_t i = 0; i <= steps; ++i) {
      sinks[i] = [&, i](std::string_view part, bool part_at_start) {
        handed[i] += part.size() + 1;
        check_growth(piece.size(), handed[i]);
        if (i == steps) return model_.encode(part, ids);
        parts_.pre_tokenizers[i](part, part_at_start, sinks[i + 1]);
      };
    }
    sinks[0](piece, at_start);
  }

  std::string decode_valid(std::span<const std::int32_t> ids) const override {
    std::vector<std::string> tokens;
    tokens.reserve(ids.size());
    for (const std::int32_t id : ids) {
      const auto token = tokens_.find(id);
      // Vocabularies have gaps.
      if (token != tokens_.end() && !token->second.empty()) tokens.push_back(token->second);
    }
    const auto count_bytes = [&] {
      std::size_t bytes = 0;
      for (const std::string& token : tokens) bytes += token.size();
      return bytes;
    };
    const std::size_t bytes = count_bytes();
    const std::scoped_lock lock(mutex_);
    for (const Decoder& decoder : parts_.decoders) {
      decoder(tokens);
      check_growth(bytes, count_bytes());
    }
    std::string text;
    for (const std::string& token : tokens) text += token;
    return text;
  }

  Parts parts_;
  AddedTokenFinder verbatim_;
  AddedTokenFinder normalized_;
  mutable Bpe model_;
  std::unordered_map<std::int32_t, std::string> tokens_;  // few may have large ids
  std::int32_t vocab_size_ = 0;
  mutable std::mutex mutex_;  // of model_'s cache and of the steps' regular expressions
};

Bpe::Vocabulary read_vocabulary(const JsonView& json) {
  Bpe::Vocabulary vocabulary;
  vocabulary.reserve(json.object().size());
  for (const auto& [token, id] : json.json().items()) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= kMaxIds)
      fail("{}: the id of {} is {}, not a whole number in the range 0 to {}", json.where(),
           json_quoted(token), id.dump(), kMaxIds - 1);
    vocabulary.emplace(token, id.get<std::int32_t>());
  }
  return vocabulary;
}

/// "left right", as merges are written.
std::pair<std::string, std::string> split_merge(const std::string& line, const std::string& where) {
  const std::size_t blank = line.find(' ');
  if (blank == std::string::npos || line.find(' ', blank + 1) != std::string::npos)
    fail("{}: expected two tokens separated by a blank, found {}", where, json_quoted(line));
  return {line.substr(0, blank), line.substr(blank + 1)};
}

void read_model(const JsonView& json, Parts& parts) {
  const JsonView type = json.get("type");
  if (!type.is_null() && type.string() != "BPE")
    fail("{}: the model type {} is not supported, only BPE is", json.where(),
         json_quoted(type.string()));
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const JsonView affix = json.get(name);
    if (!affix.is_null() && !affix.string().empty())
      fail("{}: {} is not supported", affix.where(), json_quoted(affix.string()));
  }
  const JsonView dropout = json.get("dropout");
  if (!dropout.is_null() && dropout.json() != 0)
    fail("{}: dropout makes ids random and is not supported", dropout.where());
  parts.vocabulary = read_vocabulary(json.at("vocab"));
  parts.merges = read_merges(json.at("merges"));
  const JsonView unk = json.get("unk_token");
  if (!unk.is_null()) parts.options.unk_token = unk.string();
  parts.options.fuse_unk = json.flag("fuse_unk");
  parts.options.byte_fallback = json.flag("byte_fallback");
  parts.options.ignore_merges = json.flag("ignore_merges");
}

void read_added_tokens(const JsonView& json, Parts& parts) {
  if (json.is_null()) return;
  // Only ids beyond the model's vocabulary are new; the others must agree with it.
  std::unordered_map<std::int32_t, std::string> taken;
  for (const auto& [token, id] : parts.vocabulary) taken.emplace(id, token);
  std::set<std::string> seen;
  for (std::size_t i = 0; i < json.array_size(); ++i) {
    const JsonView item = json.item(i);
    AddedToken token =
        read_added_token(item, static_cast<std::int32_t>(item.at("id").integer(kMaxIds)));
    if (!seen.insert(token.content).second)
      fail("{}: the added token {} appears twice", item.where(), json_quoted(token.content));
    const auto in_model = parts.vocabulary.find(token.content);
    if (in_model != parts.vocabulary.end() && in_model->second != token.id)
      fail("{}: {} has id {}, but {} in the model's vocabulary", item.where(),
           json_quoted(token.content), token.id, in_model->second);
    const auto [owner, is_new] = taken.emplace(token.id, token.content);
    if (!is_new && owner->second != token.content)
      fail("{}: id {} of {} already belongs to {}", item.where(), token.id,
           json_quoted(token.content), json_quoted(owner->second));
    parts.added_tokens.push_back(std::move(token));
  }
}

std::optional<std::int32_t> find_token(const Parts& parts, const std::string& token) {
  for (const AddedToken& added : parts.added_tokens)
    if (added.content == token) return added.id;
  const auto found = parts.vocabulary.find(token);
  if (found == parts.vocabulary.end()) return std::nullopt;
  return found->second;
}

void read_template(const JsonView& json, Parts& parts) {
  const JsonView single = json.at("single");
  constexpr std::size_t kMaxParts = 64;  // each is looked for among all tokens
  if (single.array_size() > kMaxParts)
    fail("{}: {} parts are too many for a template", single.where(), single.array_size());
  bool text_seen = false;
  for (std::size_t i = 0; i < single.array_size(); ++i) {
    const JsonView item = single.item(i);
    if (item.object().contains("Sequence")) {
      const JsonView id = item.at("Sequence").at("id");
      if (id.string() != "A" || text_seen)
        fail("{}: only one text, A, is supported in a template", id.where());
      text_seen = true;
      continue;
    }
    const std::string& name = item.at("SpecialToken").at("id").string();
    const JsonView ids = json.at("special_tokens").at(name).at("ids");
    for (std::size_t k = 0; k < ids.array_size(); ++k) {
      const auto id = static_cast<std::int32_t>(ids.item(k).integer(kMaxIds));
      if (!text_seen && i == 0 && k == 0) parts.bos_id = id;
      (text_seen ? parts.ends.suffix : parts.ends.prefix).push_back(id);
    }
    const auto token_id = find_token(parts, name);
    if (ids.array_size() == 1 && token_id && ids.item(0).json() != *token_id)
      fail("{}: {} has id {} here, but {} in the vocabulary", ids.where(), json_quoted(name),
           ids.item(0).json().dump(), *token_id);
  }
  if (!text_seen) fail("{}: the template has no place for the text", single.where());
}

void read_post_processor(const JsonView& json, Parts& parts) {
  if (json.is_null()) return;
  const std::string& type = json.at("type").string();
  if (type == "ByteLevel") return;  // it moves offsets only
  if (type == "TemplateProcessing") return read_template(json, parts);
  if (type != "Sequence") fail("{}: the type {} is not supported", json.where(), json_quoted(type));
  const JsonView list = json.at("processors");
  for (std::size_t i = 0; i < list.array_size(); ++i) read_post_processor(list.item(i), parts);
}

std::optional<std::int32_t> first_known(const Parts& parts,
                                        std::initializer_list<const char*> names) {
  for (const char* name : names) {
    for (const AddedToken& token : parts.added_tokens)
      if (token.special && token.content == name) return token.id;
  }
  return std::nullopt;
}

/// BOS and EOS: from the configuration, else from the template, else by their usual names. What is
/// put around a text: add_bos_token and add_eos_token go before the template of tokenizer.json.
void find_ends(const TokenizerConfig& config, bool has_template, Parts& parts) {
  if (!parts.bos_id)
    parts.bos_id =
        first_known(parts, {"<s>", "<|begin_of_text|>", "<bos>", "<|startoftext|>", kGpt2End});
  parts.eos_id = parts.ends.suffix.empty()
                     ? first_known(parts, {"</s>", "<|end_of_text|>", "<eos>", kGpt2End})
                     : std::optional(parts.ends.suffix.front());
  const auto find = [&](const std::string& token) { return find_token(parts, token); };
  parts.bos_id = config.id_of("bos_token", parts.bos_id, find);
  parts.eos_id = config.id_of("eos_token", parts.eos_id, find);
  const TextEnds ends = text_ends(config, parts.ends, parts.bos_id, parts.eos_id);
  if (has_template && ends != parts.ends)
    notice(
        "{}: add_bos_token and add_eos_token of {} add {} tokens before a text and {} after it, "
        "its template adds {} and {}; the former are used",
        config.where, kTokenizerConfig, ends.prefix.size(), ends.suffix.size(),
        parts.ends.prefix.size(), parts.ends.suffix.size());
  parts.ends = ends;
}

/// Tokens of the configuration that the tokenizer's own file does not have among its added ones.
void add_configured_tokens(const TokenizerConfig& config, Parts& parts) {
  StringMap<std::int32_t> added;
  std::set<std::int32_t> taken;
  for (const AddedToken& token : parts.added_tokens) {
    added.emplace(token.content, token.id);
    taken.insert(token.id);
  }
  std::int32_t next = taken.empty() ? 0 : *taken.rbegin() + 1;
  for (const auto& [token, id] : parts.vocabulary) {
    taken.insert(id);
    next = std::max(next, id + 1);
  }
  for (AddedToken token : config.tokens()) {
    if (added.contains(token.content)) continue;
    std::optional<std::int32_t> own;
    if (const auto found = parts.vocabulary.find(token.content); found != parts.vocabulary.end())
      own = found->second;
    token.id = config.place(token, own, taken.contains(token.id), next);
    added.emplace(token.content, token.id);
    taken.insert(token.id);
    next = std::max(next, token.id + 1);
    parts.added_tokens.push_back(std::move(token));
  }
  for (const auto& [key, token] : config.of_class)
    if (const auto own = parts.vocabulary.find(token);
        own != parts.vocabulary.end() && added.emplace(token, own->second).second)
      parts.added_tokens.push_back({.id = own->second, .content = token, .special = true});
}

}  // namespace

Bpe::Merges read_merges(const JsonView& json) {
  Bpe::Merges merges;
  merges.reserve(json.array_size());
  for (std::size_t i = 0; i < json.json().size(); ++i) {
    const JsonView merge = json.item(i);
    if (merge.json().is_array()) {
      if (merge.array_size() != 2)
        fail("{}: expected two tokens, found {}", merge.where(), merge.array_size());
      merges.emplace_back(merge.item(0).string(), merge.item(1).string());
    } else {
      merges.push_back(split_merge(merge.string(), merge.where()));
    }
  }
  return merges;
}

nlohmann::json gpt2_as_json(const TokenizerFiles& files, const std::string& where) {
  const bool by_openai = files.contains("encoder.json");
  const std::string vocabulary_name = by_openai ? "encoder.json" : "vocab.json";
  const std::string merges_name = by_openai ? "vocab.bpe" : "merges.txt";
  nlohmann::json vocabulary =
      parse_strict_json(tokenizer_file(files, vocabulary_name, where), where);
  std::istringstream lines(tokenizer_file(files, merges_name, where));
  nlohmann::json merges = nlohmann::json::array(), added = nlohmann::json::array();
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    if (line.ends_with('\r')) line.pop_back();
    // Only the first line may be the version comment: a merge may begin with #.
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    merges.emplace_back(
        split_merge(line, fmt::format("{}: {} line {}", where, merges_name, number)));
  }
  if (vocabulary.is_object() && vocabulary.contains(kGpt2End))
    added.push_back({{"id", vocabulary[kGpt2End]}, {"content", kGpt2End}, {"special", true}});
  const bool prefix = read_tokenizer_config(files, where).add_prefix_space.value_or(false);
  return {{"model", {{"vocab", std::move(vocabulary)}, {"merges", std::move(merges)}}},
          {"added_tokens", std::move(added)},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", prefix}}},
          {"decoder", {{"type", "ByteLevel"}}}};
}

std::unique_ptr<Tokenizer> make_bpe_tokenizer(const std::string& kind, const TokenizerFiles& files,
                                              const std::string& where) {
  const TokenizerConfig config = read_tokenizer_config(files, where);
  const bool gpt2 = kind == "gpt2";
  if (gpt2 && !config.tokenizer_class.empty() && !config.is_class("GPT2Tokenizer"))
    fail("{}: {}: {} splits text with a method that is not supported: save it as tokenizer.json",
         where, kTokenizerConfig, json_quoted(config.tokenizer_class));
  const nlohmann::json json =
      gpt2 ? gpt2_as_json(files, where)
           : parse_strict_json(tokenizer_file(files, "tokenizer.json", where), where);
  const JsonView file(json, where);
  Parts parts;
  read_model(file.at("model"), parts);
  read_added_tokens(file.get("added_tokens"), parts);
  parts.normalizers = read_normalizers(file.get("normalizer"));
  parts.pre_tokenizers = read_pre_tokenizers(file.get("pre_tokenizer"));
  read_post_processor(file.get("post_processor"), parts);
  parts.decoders = read_decoders(file.get("decoder"));
  add_configured_tokens(config, parts);
  find_ends(config, !file.get("post_processor").is_null(), parts);
  return std::make_unique<BpeTokenizer>(kind, files, std::move(parts), where);
}

}  // namespace focus
