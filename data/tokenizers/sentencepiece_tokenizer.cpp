#include <sentencepiece_processor.h>

#include <algorithm>
#include <unordered_map>

#include "autograd/base/check.h"
#include "data/files/utf8.h"
#include "data/tokenizers/sentencepiece_model.h"
#include "data/tokenizers/tokenizer_config.h"

namespace focus {
namespace {

/// Where a space is put before a part of a text that lies between added tokens.
enum class Prefix {
  own,     // as the model file's normalizer does, before every part
  never,   // GemmaTokenizer
  first,   // LlamaTokenizer: before a part at the text's start, if it does not begin with one
  always,  // the same with `legacy`: before every part
};

/// What transformers 5 does for a tokenizer of this class. Any other class, or none, is read as the
/// model file says.
Prefix prefix_of(const TokenizerConfig& config) {
  if (config.is_class("GemmaTokenizer")) return Prefix::never;
  if (!config.is_class("LlamaTokenizer")) return Prefix::own;
  if (!config.add_prefix_space.value_or(true)) return Prefix::never;
  return config.legacy.value_or(false) ? Prefix::always : Prefix::first;
}

/// Behind a model, what LlamaTokenizer and GemmaTokenizer put in the place of its normalizer:
/// spaces become marks, and nothing else. Fields of a message that come later go before those in
/// it: normalizer_spec (3) with precompiled_charsmap (2) empty, add_dummy_prefix (3) and
/// remove_extra_whitespaces (4) false.
constexpr std::string_view kNoNormalizer("\x1a\x06\x12\x00\x18\x00\x20\x00", 8);

class SentencePieceTokenizer : public Tokenizer {
 public:
  SentencePieceTokenizer(const TokenizerFiles& files, const std::string& where)
      : Tokenizer("sentencepiece", files), finder_({}) {
    const std::string& model = tokenizer_file(files, "tokenizer.model", where);
    const TokenizerConfig config = read_tokenizer_config(files, where);
    prefix_ = prefix_of(config);
    const SentencePieceModel parts = read_sentencepiece_model(model, where);
    const auto status = processor_.LoadFromSerializedProto(
        prefix_ == Prefix::own ? model : model + std::string(kNoNormalizer));
    if (!status.ok()) fail("{}: not a SentencePiece model: {}", where, one_line(status.ToString()));
    check(processor_.GetPieceSize() > 0, "{}: the SentencePiece model has no pieces", where);
    vocab_size_ = processor_.GetPieceSize();
    // A model file alone is read as its own library reads it: </s> in a text is text.
    if (files.size() > 1) add_pieces(parts, config.is_class("LlamaTokenizer"));
    for (const AddedToken& token : config.tokens()) put(token, config);
    const auto of_model = [](int id) { return id < 0 ? std::nullopt : std::optional(id); };
    const auto find = [&](const std::string& token) {
      const auto found = by_content_.find(token);
      return found == by_content_.end() ? std::nullopt : std::optional(found->second);
    };
    bos_id_ = config.id_of("bos_token", of_model(processor_.bos_id()), find);
    eos_id_ = config.id_of("eos_token", of_model(processor_.eos_id()), find);
    TextEnds bos;
    if (bos_id_) bos.prefix = {*bos_id_};
    ends_ = text_ends(config, bos, bos_id_, eos_id_);
    std::vector<AddedToken> tokens;
    for (const auto& [id, token] : added_) tokens.push_back(token);
    finder_ = AddedTokenFinder(std::move(tokens));
    find_anchor();
  }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    const std::string valid = replace_invalid_utf8(text);
    std::vector<std::int32_t> ids;
    finder_.split(
        valid, [&](std::string_view part) { encode_part(part, part.data() == valid.data(), ids); },
        [&](std::int32_t id) { ids.push_back(id); });
    return ids;
  }

  std::span<const std::int32_t> prefix() const override { return ends_.prefix; }
  std::span<const std::int32_t> suffix() const override { return ends_.suffix; }
  std::int32_t vocab_size() const override { return vocab_size_; }
  std::optional<std::int32_t> bos_id() const override { return bos_id_; }
  std::optional<std::int32_t> eos_id() const override { return eos_id_; }
  bool is_special(std::int32_t id) const override {
    const auto token = added_.find(id);
    if (token != added_.end()) return token->second.special;
    return id >= 0 && id < processor_.GetPieceSize() && processor_.IsControl(id);
  }

 private:
  static std::string one_line(std::string text) {
    for (char& c : text) c = static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    return replace_invalid_utf8(text);  // it quotes pieces
  }

  void add(AddedToken token) {
    vocab_size_ = std::max(vocab_size_, token.id + 1);
    by_content_[token.content] = token.id;
    added_[token.id] = std::move(token);
  }

  /// Control pieces and the unknown one are found in texts. The library finds the user's own pieces
  /// by itself; LlamaTokenizer cuts them out as well, and puts no space before a text that begins
  /// so.
  void add_pieces(const SentencePieceModel& model, bool users_too) {
    for (std::int32_t id = 0; id < processor_.GetPieceSize(); ++id) {
      const std::string& piece = processor_.IdToPiece(id);
      if (piece.empty() || !is_valid_utf8(piece)) continue;
      if (processor_.IsControl(id) || processor_.IsUnknown(id))
        add({.id = id, .content = piece, .special = true});
      else if (users_too && piece.find(kSpaceMark) == std::string::npos &&
               model.pieces.at(static_cast<std::size_t>(id)).type == TokenType::user_defined)
        add({.id = id, .content = piece});
    }
  }

  void put(AddedToken token, const TokenizerConfig& config) {
    const auto known = by_content_.find(token.content);
    if (known != by_content_.end()) {  // the configuration adds its flags
      AddedToken& own = added_.at(known->second);
      own.lstrip |= token.lstrip;
      own.rstrip |= token.rstrip;
      own.single_word |= token.single_word;
      return;
    }
    // A piece with that id is a placeholder, which the token takes the place of.
    token.id = config.place(token, find_piece(token.content), false, vocab_size_);
    add(std::move(token));
  }

  /// A piece has marks where a token has spaces.
  std::optional<std::int32_t> find_piece(const std::string& content) const {
    const std::string marked = replaced(content, " ", kSpaceMark);
    const int id = processor_.PieceToId(marked);  // the unknown piece's id if it is missing
    return processor_.IdToPiece(id) == marked ? std::optional(id) : std::nullopt;
  }

  void encode_part(std::string_view part, bool at_start, std::vector<std::int32_t>& ids) const {
    const bool prefixed = prefix_ == Prefix::always || (prefix_ == Prefix::first && at_start);
    const bool begins_so = part.starts_with(' ') || part.starts_with(kSpaceMark);
    std::string text = prefixed && !begins_so ? " " : "";
    text += part;
    std::vector<int> of_part;
    const auto status = processor_.Encode(text, &of_part);
    if (!status.ok()) fail("SentencePiece cannot encode: {}", one_line(status.ToString()));
    ids.insert(ids.end(), of_part.begin(), of_part.end());
  }

  std::string decode_pieces(const std::vector<int>& ids) const {
    std::string text;
    const auto status = processor_.Decode(ids, &text);
    if (!status.ok()) fail("SentencePiece cannot decode: {}", one_line(status.ToString()));
    return text;
  }

  /// Finds a piece whose text is the same in every position.
  void find_anchor() {
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      const bool normal = !processor_.IsControl(id) && !processor_.IsUnknown(id) &&
                          !processor_.IsUnused(id) && !processor_.IsByte(id);
      if (!normal || added_.contains(id) || processor_.IdToPiece(id).find(kSpaceMark) == 0)
        continue;
      anchor_text_ = decode_pieces({id});
      if (anchor_text_.empty() || decode_pieces({id, id}) != anchor_text_ + anchor_text_) continue;
      anchor_ = id;
      return;
    }
  }

  /// The library drops a space at the start of what it decodes: that of the text's start alone is
  /// one that was put there.
  std::string decode_run(std::vector<int> run, bool at_start) const {
    if (prefix_ != Prefix::own || at_start || !anchor_) {
      std::string text = decode_pieces(run);
      const bool put = prefix_ == Prefix::first || prefix_ == Prefix::always;
      if (put && at_start && text.starts_with(' ')) text.erase(0, 1);
      return text;
    }
    run.insert(run.begin(), *anchor_);
    return decode_pieces(run).substr(anchor_text_.size());
  }

  /// A user-defined piece with marks for spaces: the library writes them as spaces.
  bool is_marked_piece(const AddedToken& token) const {
    return !token.special && token.id < processor_.GetPieceSize() &&
           token.content.find(kSpaceMark) != std::string::npos;
  }

  std::string decode_valid(std::span<const std::int32_t> ids) const override {
    std::string text;
    std::vector<int> run;
    bool at_start = true;
    const auto end_run = [&] {
      if (!run.empty()) text += decode_run(std::move(run), at_start);
      run.clear();
    };
    for (const std::int32_t id : ids) {
      const auto token = added_.find(id);
      if (token == added_.end() || is_marked_piece(token->second)) {
        if (id < processor_.GetPieceSize()) run.push_back(id);  // the others are gaps
        continue;
      }
      end_run();
      at_start = false;
      text += token->second.content;
    }
    end_run();
    return text;
  }

  sentencepiece::SentencePieceProcessor processor_;
  Prefix prefix_ = Prefix::own;
  std::unordered_map<std::string, std::int32_t> by_content_;
  std::unordered_map<std::int32_t, AddedToken> added_;
  AddedTokenFinder finder_;
  TextEnds ends_;
  std::int32_t vocab_size_ = 0;
  std::optional<std::int32_t> bos_id_, eos_id_;
  std::optional<int> anchor_;
  std::string anchor_text_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const TokenizerFiles& files,
                                                        const std::string& where) {
  return std::make_unique<SentencePieceTokenizer>(files, where);
}

}  // namespace focus
