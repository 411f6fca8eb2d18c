#include "data/tokenizers/sentencepiece_model.h"

#include <bit>
#include <cstring>

#include "autograd/base/check.h"
#include "data/files/message_writer.h"

namespace focus {
namespace {

constexpr std::uint64_t kBpe = 2;  // a trainer's model_type

/// The fields of a serialized protocol buffer message, one after the other.
class Message {
 public:
  Message(std::string_view bytes, const std::string& where) : bytes_(bytes), where_(where) {}

  /// Moves to the next field; false at the end.
  bool next() {
    if (bytes_.empty()) return false;
    const std::uint64_t tag = varint();
    number_ = tag >> 3;
    if (number_ == 0) damaged();
    const std::uint64_t kind = tag & 7;
    if (kind > 2 && kind != 5) damaged();
    integer_ = kind == 0 ? varint() : 0;
    is_bytes_ = kind == 2;
    const std::uint64_t size = is_bytes_ ? varint() : kind == 1 ? 8 : kind == 5 ? 4 : 0;
    if (size > bytes_.size()) damaged();
    value_ = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return true;
  }
  /// Whether the field is `number` and holds bytes: a string or a message.
  bool holds(std::uint64_t number) const { return is_bytes_ && number_ == number; }
  std::string_view value() const { return value_; }
  std::uint64_t number() const { return number_; }
  /// The value of an integer field; 0 for another field.
  std::uint64_t integer() const { return integer_; }
  /// The value of a field of four bytes; 0 for another field.
  float real() const {
    float real = 0;
    if (value_.size() == sizeof real && !is_bytes_) std::memcpy(&real, value_.data(), sizeof real);
    return real;
  }

 private:
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64 && !bytes_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes_.front());
      bytes_.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    damaged();
  }
  [[noreturn]] void damaged() const {
    fail("{}: not a SentencePiece model: truncated or damaged", where_);
  }

  std::string_view bytes_, value_;
  const std::string& where_;
  std::uint64_t number_ = 0, integer_ = 0;
  bool is_bytes_ = false;
};

/// `rules`: the bytes of a trie in four bytes, the trie as darts-clone's units of four bytes, and
/// the replacements, each ended by a NUL, which the trie's values are offsets of.
bool rules_stay_inside(std::string_view rules) {
  static_assert(std::endian::native == std::endian::little);
  std::uint32_t trie_bytes = 0;
  if (rules.size() <= sizeof trie_bytes) return false;
  std::memcpy(&trie_bytes, rules.data(), sizeof trie_bytes);
  rules.remove_prefix(sizeof trie_bytes);
  // Blocks of 256 units: a step to a child changes the low eight bits alone, so it stays in the
  // block that the unit's offset leads to.
  if (trie_bytes == 0 || trie_bytes % 1024 != 0 || trie_bytes >= rules.size()) return false;
  if (rules.back() != '\0') return false;
  const std::string_view replacements = rules.substr(trie_bytes);
  const std::uint32_t units = trie_bytes / 4;
  const auto unit = [&](std::uint32_t i) {
    std::uint32_t value = 0;
    std::memcpy(&value, rules.data() + std::size_t{4} * i, 4);
    return value;
  };
  for (std::uint32_t i = 0; i < units; ++i) {
    const std::uint32_t node = unit(i);
    if (i > 0 && (node >> 31) != 0) continue;  // a value; the first one is the root, always
    const std::uint32_t child = i ^ ((node >> 10) << ((node & (1u << 9)) >> 6));
    if (child >= units) return false;
    const bool has_value = ((node >> 8) & 1) != 0;
    if (has_value && (unit(child) & 0x7fffffff) >= replacements.size()) return false;
  }
  return true;
}

// Field numbers and defaults are those of sentencepiece_model.proto.

SentencePieceModel::Piece read_piece(std::string_view bytes, const std::string& where) {
  SentencePieceModel::Piece piece;
  for (Message field(bytes, where); field.next();) {
    if (field.holds(1)) piece.text = field.value();
    if (field.number() == 2) piece.score = field.real();
    const std::uint64_t type = field.number() == 3 ? field.integer() : 0;
    if (type >= 1 && type <= 6) piece.type = static_cast<TokenType>(type);
  }
  return piece;
}

void read_trainer(std::string_view bytes, const std::string& where, SentencePieceModel& model) {
  const auto id = [&](const Message& field) -> std::optional<std::int32_t> {
    const auto value = static_cast<std::int32_t>(field.integer());
    return value < 0 ? std::nullopt : std::optional(value);
  };
  for (Message field(bytes, where); field.next();) {
    if (field.number() == 3) model.bpe = field.integer() == kBpe;
    if (field.number() == 35) model.byte_fallback = field.integer() != 0;
    if (field.number() == 40) model.unk_id = id(field).value_or(0);
    if (field.number() == 41) model.bos_id = id(field);
    if (field.number() == 42) model.eos_id = id(field);
    if (field.number() == 43) model.pad_id = id(field);
  }
}

/// Reads a normalizer or a denormalizer; its other fields change nothing here.
void read_normalizer(std::string_view bytes, const std::string& where, SentencePieceModel& model) {
  bool rules = false, removes = true;
  for (Message field(bytes, where); field.next();) {
    if (field.holds(2)) {
      rules = !field.value().empty();
      if (rules && !rules_stay_inside(field.value()))
        fail("{}: the SentencePiece model's precompiled_charsmap is damaged", where);
    }
    if (field.number() == 3) model.add_dummy_prefix = field.integer() != 0;
    if (field.number() == 4) removes = field.integer() != 0;
  }
  model.normalizes = rules || removes;
}

/// An id; -1, as 64 bits of two's complement, where the model has no such token.
void write_id(MessageWriter& to, std::uint64_t field, std::optional<std::int32_t> value) {
  to.integer(field, static_cast<std::uint64_t>(static_cast<std::int64_t>(value.value_or(-1))));
}

}  // namespace

SentencePieceModel read_sentencepiece_model(std::string_view bytes, const std::string& where) {
  SentencePieceModel model, denormalizer;
  for (Message field(bytes, where); field.next();) {
    if (field.holds(1)) {
      model.pieces.push_back(read_piece(field.value(), where));
      if (model.pieces.back().text.find('\0') != std::string::npos)
        fail("{}: not a SentencePiece model: piece {} has a NUL in it", where,
             model.pieces.size() - 1);
    }
    if (field.holds(2)) read_trainer(field.value(), where, model);
    if (field.holds(3)) read_normalizer(field.value(), where, model);
    if (field.holds(5)) read_normalizer(field.value(), where, denormalizer);
  }
  return model;
}

std::string write_sentencepiece_model(const SentencePieceModel& model) {
  MessageWriter file, trainer, normalizer;
  for (const SentencePieceModel::Piece& each : model.pieces) {
    MessageWriter piece;
    piece.text(1, each.text);
    piece.number(2, each.score);
    piece.integer(3, static_cast<std::uint64_t>(each.type));
    file.text(1, piece.bytes());
  }
  trainer.integer(3, kBpe);
  trainer.integer(4, model.pieces.size());
  trainer.integer(25, 1);  // split_digits
  trainer.integer(26, 1);  // allow_whitespace_only_pieces
  trainer.integer(35, model.byte_fallback ? 1 : 0);
  const std::optional<std::int32_t> ids[] = {model.unk_id, model.bos_id, model.eos_id,
                                             model.pad_id};
  for (std::uint64_t i = 0; i < 4; ++i) write_id(trainer, 40 + i, ids[i]);
  // The library finds them by these names, not by their ids.
  for (std::uint64_t i = 0; i < 4; ++i)
    if (ids[i]) trainer.text(45 + i, model.pieces[*ids[i]].text);
  file.text(2, trainer.bytes());
  normalizer.text(1, "identity");
  normalizer.integer(3, model.add_dummy_prefix ? 1 : 0);
  normalizer.integer(4, 0);  // remove_extra_whitespaces
  normalizer.integer(5, 1);  // escape_whitespaces
  file.text(3, normalizer.bytes());
  return std::move(file.bytes());
}

}  // namespace focus
