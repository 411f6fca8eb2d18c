#include "data/tokenizers/sentencepiece_model.h"

#include <bit>
#include <cstdint>
#include <cstring>

#include "autograd/base/check.h"

namespace focus {
namespace {

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
    std::uint64_t size = 0;
    integer_ = 0;
    switch (tag & 7) {
      case 0:
        integer_ = varint();
        break;
      case 1:
        size = 8;
        break;
      case 2:
        size = varint();
        break;
      case 5:
        size = 4;
        break;
      default:
        damaged();
    }
    if (size > bytes_.size()) damaged();
    value_ = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    is_bytes_ = (tag & 7) == 2;
    is_integer_ = (tag & 7) == 0;
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
  /// Whether the field is `number` and a whole number, which is `integer`.
  bool holds(std::uint64_t number, std::uint64_t integer) const {
    return is_integer_ && number_ == number && integer_ == integer;
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
  bool is_bytes_ = false, is_integer_ = false;
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

}  // namespace

std::vector<std::int32_t> user_defined_pieces(std::string_view model) {
  constexpr std::uint64_t pieces = 1, piece_type = 3, user_defined = 4;
  const std::string where = "tokenizer.model";
  std::vector<std::int32_t> ids;
  std::int32_t id = 0;
  for (Message field(model, where); field.next();) {
    if (!field.holds(pieces)) continue;
    for (Message piece(field.value(), where); piece.next();)
      if (piece.holds(piece_type, user_defined)) ids.push_back(id);
    ++id;
  }
  return ids;
}

void check_sentencepiece_model(std::string_view model, const std::string& where) {
  // Field numbers of sentencepiece_model.proto.
  constexpr std::uint64_t pieces = 1, normalizer = 3, denormalizer = 5;
  constexpr std::uint64_t piece_text = 1, compiled_rules = 2;
  std::int64_t id = 0;
  for (Message field(model, where); field.next();) {
    if (field.holds(pieces)) {
      for (Message piece(field.value(), where); piece.next();)
        if (piece.holds(piece_text) && piece.value().find('\0') != std::string_view::npos)
          fail("{}: not a SentencePiece model: piece {} has a NUL in it", where, id);
      ++id;
    }
    if (field.holds(normalizer) || field.holds(denormalizer)) {
      for (Message spec(field.value(), where); spec.next();)
        if (spec.holds(compiled_rules) && !spec.value().empty() && !rules_stay_inside(spec.value()))
          fail("{}: the SentencePiece model's precompiled_charsmap is damaged", where);
    }
  }
}

namespace {

// Field numbers and defaults of sentencepiece_model.proto.

SentencePieceParts::Piece read_piece(std::string_view bytes, const std::string& where) {
  SentencePieceParts::Piece piece;
  for (Message field(bytes, where); field.next();) {
    if (field.holds(1)) piece.text = field.value();
    if (field.number() == 2) piece.score = field.real();
    const std::uint64_t type = field.number() == 3 ? field.integer() : 0;
    if (type >= 1 && type <= 6) piece.type = static_cast<TokenType>(type);
  }
  return piece;
}

void read_trainer(std::string_view bytes, const std::string& where, SentencePieceFile& file) {
  constexpr std::uint64_t kBpe = 2;
  const auto id = [&](const Message& field) -> std::optional<std::int32_t> {
    const auto value = static_cast<std::int32_t>(field.integer());
    return value < 0 ? std::nullopt : std::optional(value);
  };
  for (Message field(bytes, where); field.next();) {
    if (field.number() == 3) file.bpe = field.integer() == kBpe;
    if (field.number() == 35) file.parts.byte_fallback = field.integer() != 0;
    if (field.number() == 40) file.parts.unk_id = id(field).value_or(0);
    if (field.number() == 41) file.parts.bos_id = id(field);
    if (field.number() == 42) file.parts.eos_id = id(field);
    if (field.number() == 43) file.parts.pad_id = id(field);
  }
}

void read_normalizer(std::string_view bytes, const std::string& where, SentencePieceFile& file) {
  bool rules = false, removes = true;
  for (Message field(bytes, where); field.next();) {
    if (field.holds(2)) rules = !field.value().empty();
    if (field.number() == 3) file.parts.add_dummy_prefix = field.integer() != 0;
    if (field.number() == 4) removes = field.integer() != 0;
  }
  file.normalizes = rules || removes;
}

}  // namespace

SentencePieceFile read_sentencepiece_model(std::string_view model, const std::string& where) {
  SentencePieceFile file;
  file.parts.bos_id = 1;
  file.parts.eos_id = 2;
  file.parts.add_dummy_prefix = true;
  for (Message field(model, where); field.next();) {
    if (field.holds(1)) file.parts.pieces.push_back(read_piece(field.value(), where));
    if (field.holds(2)) read_trainer(field.value(), where, file);
    if (field.holds(3)) read_normalizer(field.value(), where, file);
  }
  return file;
}

}  // namespace focus
