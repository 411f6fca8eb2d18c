#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/files/json_reader.h"
#include "data/tokenizers/added_tokens.h"
#include "data/tokenizers/tokenizer.h"

namespace focus {

/// Beside a tokenizer's own files: its class, its special tokens, what it puts around a text.
inline constexpr const char* kTokenizerConfig = "tokenizer_config.json";
/// For tokenizers without a tokenizer.json: tokens beyond the vocabulary, and which are special.
/// Read where tokenizer_config.json has no added_tokens_decoder, as transformers does.
inline constexpr const char* kAddedTokens = "added_tokens.json";
inline constexpr const char* kSpecialTokensMap = "special_tokens_map.json";

/// More ids than any published vocabulary has; a wrong id must not cost memory.
inline constexpr std::int32_t kMaxIds = 1 << 22;

/// What these files say.
struct TokenizerConfig {
  std::string where;            // for messages
  std::string tokenizer_class;  // empty: not said
  std::optional<bool> add_bos_token, add_eos_token, add_prefix_space, legacy;
  /// "bos_token", "eos_token", "pad_token" and the like; null if the file says null.
  std::map<std::string, std::optional<std::string>> named = {};
  /// Those that its class has where the file does not name the key; empty where it has none.
  std::map<std::string, std::string> of_class = {};
  /// Tokens with ids: of added_tokens_decoder, or of added_tokens.json.
  std::vector<AddedToken> added = {};
  /// additional_special_tokens, extra_special_tokens, model_specific_special_tokens: without ids.
  std::vector<std::string> extra = {};

  bool is_class(const std::string& name) const {  // or its fast twin of transformers 4
    return tokenizer_class == name || tokenizer_class == name + "Fast";
  }
  /// All that are named and not null, in transformers' order, then the extra ones.
  std::vector<std::string> special_contents() const;
  /// `added`, then special_contents() with the id -1.
  std::vector<AddedToken> tokens() const;
  /// The id of one of these: `own`, that of the same text in the tokenizer's own files; else that
  /// which it has, where that is not `taken`; else `next`. A notice tells of another one than the
  /// configuration says, and of one that no file has. Throws where none is left.
  std::int32_t place(const AddedToken& token, std::optional<std::int32_t> own, bool taken,
                     std::int32_t next) const;
  /// The id that find(text), which may give none, gives of the token that is named so; where the
  /// key is missing that of the class, else `otherwise`; none where it is null.
  template <class F>
  std::optional<std::int32_t> id_of(const std::string& key, std::optional<std::int32_t> otherwise,
                                    F&& find) const {
    const auto token = named.find(key);
    if (token != named.end())
      return token->second ? std::optional<std::int32_t>(find(*token->second)) : std::nullopt;
    const auto own = of_class.find(key);
    if (own == of_class.end()) return otherwise;
    if (own->second.empty()) return std::nullopt;
    const std::optional<std::int32_t> id = find(own->second);
    return id ? id : otherwise;
  }
};

/// The special tokens of a class of transformers' tokenizers, "eos_token" -> its text, which is
/// empty where the class has none; nothing of a class that is not known.
const std::map<std::string, std::string>& tokens_of_class(const std::string& tokenizer_class);

/// From the files of a tokenizer; all is unsaid where they hold none of the three. Throws
/// std::runtime_error for what is no such file, naming `where` and the key.
TokenizerConfig read_tokenizer_config(const TokenizerFiles& files, const std::string& where);

/// A token with flags, as these files and tokenizer.json have it: its text, or an object.
AddedToken read_added_token(const JsonView& item, std::int32_t id);

/// What is put around a text.
struct TextEnds {
  std::vector<std::int32_t> prefix = {}, suffix = {};
  bool operator==(const TextEnds&) const = default;
  /// How many ids put_around() puts before these: the prefix, or none where they begin with it.
  std::ptrdiff_t put_before(std::span<const std::int32_t> ids) const;
  /// Puts them around the ids of a text that does not begin or end with them already.
  void put_around(std::vector<std::int32_t>& ids) const;
};
/// BOS and EOS as add_bos_token and add_eos_token say, else as in `otherwise`.
TextEnds text_ends(const TokenizerConfig& config, const TextEnds& otherwise,
                   std::optional<std::int32_t> bos_id, std::optional<std::int32_t> eos_id);

/// The bytes of the file of this name, which must be there.
const std::string& tokenizer_file(const TokenizerFiles& files, const std::string& name,
                                  const std::string& where);

// The kinds of tokenizers that are made from files. Each throws std::runtime_error, naming it, for
// anything in them that is not supported.

/// A BPE model with the steps around it: of kind "tokenizer.json" as that file describes them
/// (truncation and padding in it are the caller's affair, as in transformers, and are not read), of
/// kind "gpt2" as gpt2_as_json() does.
std::unique_ptr<Tokenizer> make_bpe_tokenizer(const std::string& kind, const TokenizerFiles& files,
                                              const std::string& where);
/// GPT-2's two files, encoder.json with vocab.bpe or vocab.json with merges.txt, as the
/// tokenizer.json that says the same.
nlohmann::json gpt2_as_json(const TokenizerFiles& files, const std::string& where);
/// The merges of a tokenizer.json's model: two tokens each, as a list or with a blank between them.
std::vector<std::pair<std::string, std::string>> read_merges(const JsonView& json);
/// tokenizer.model: a SentencePiece model (BPE or unigram).
std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const TokenizerFiles& files,
                                                        const std::string& where);

}  // namespace focus
