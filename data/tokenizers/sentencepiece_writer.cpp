#include "data/tokenizers/sentencepiece_writer.h"

#include <bit>
#include <string_view>

namespace focus {
namespace {

/// Serializes a protocol buffer message field by field.
class MessageWriter {
 public:
  void integer(std::uint64_t field, std::uint64_t value) {
    varint(field << 3);
    varint(value);
  }
  /// Negative numbers are written as 64 bits of two's complement.
  void id(std::uint64_t field, std::optional<std::int32_t> value) {
    integer(field, static_cast<std::uint64_t>(static_cast<std::int64_t>(value.value_or(-1))));
  }
  void number(std::uint64_t field, float value) {
    varint((field << 3) | 5);
    const auto bits = std::bit_cast<std::uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8)
      bytes_.push_back(static_cast<char>((bits >> shift) & 0xFF));
  }
  void text(std::uint64_t field, std::string_view value) {
    varint((field << 3) | 2);
    varint(value.size());
    bytes_ += value;
  }
  std::string& bytes() { return bytes_; }

 private:
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>((value & 0x7F) | 0x80));
    bytes_.push_back(static_cast<char>(value));
  }

  std::string bytes_;
};

// Field numbers are those of sentencepiece_model.proto.

std::string piece_message(const SentencePieceParts::Piece& piece) {
  MessageWriter message;
  message.text(1, piece.text);
  message.number(2, piece.score);
  message.integer(3, static_cast<std::uint64_t>(piece.type));
  return std::move(message.bytes());
}

std::string trainer_message(const SentencePieceParts& parts) {
  constexpr std::uint64_t kBpe = 2;
  MessageWriter message;
  message.integer(3, kBpe);
  message.integer(4, parts.pieces.size());
  message.integer(25, 1);  // split_digits
  message.integer(26, 1);  // allow_whitespace_only_pieces
  message.integer(35, parts.byte_fallback ? 1 : 0);
  message.id(40, parts.unk_id);
  message.id(41, parts.bos_id);
  message.id(42, parts.eos_id);
  message.id(43, parts.pad_id);
  // The library finds them by these names, not by their ids.
  const auto name = [&](std::uint64_t field, std::optional<std::int32_t> id) {
    if (id) message.text(field, parts.pieces[static_cast<std::size_t>(*id)].text);
  };
  name(45, parts.unk_id);
  name(46, parts.bos_id);
  name(47, parts.eos_id);
  name(48, parts.pad_id);
  return std::move(message.bytes());
}

std::string normalizer_message(const SentencePieceParts& parts) {
  MessageWriter message;
  message.text(1, "identity");
  message.integer(3, parts.add_dummy_prefix ? 1 : 0);
  message.integer(4, 0);  // remove_extra_whitespaces
  message.integer(5, 1);  // escape_whitespaces
  return std::move(message.bytes());
}

}  // namespace

std::string write_sentencepiece_model(const SentencePieceParts& parts) {
  MessageWriter model;
  for (const SentencePieceParts::Piece& piece : parts.pieces) model.text(1, piece_message(piece));
  model.text(2, trainer_message(parts));
  model.text(3, normalizer_message(parts));
  return std::move(model.bytes());
}

}  // namespace focus
