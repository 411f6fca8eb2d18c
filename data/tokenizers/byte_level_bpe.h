#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/tokenizers/flat_map.h"

namespace focus {

/// Lets maps with std::string keys be searched by std::string_view.
struct StringHash : std::hash<std::string_view> {
  using is_transparent = void;
  using std::hash<std::string_view>::operator();
};
template <class Value>
using StringMap = std::unordered_map<std::string, Value, StringHash, std::equal_to<>>;

/// The alphabet of byte-level BPE: a printable character for each of the 256 bytes, so that a
/// vocabulary over any bytes is text.
class ByteAlphabet {
 public:
  static const ByteAlphabet& instance();

  /// Appends the character of every byte.
  void encode(std::string_view bytes, std::string& out) const;
  /// The characters in the order of their code points.
  std::vector<std::string> sorted() const;
  /// The bytes of a token's characters; the token itself if one is not in the alphabet.
  std::string decode(const std::string& token) const;

 private:
  ByteAlphabet();

  static constexpr std::size_t kEnd = 0x144;  // the first code point beyond the alphabet

  struct Character {
    std::array<char, 2> utf8 = {};
    std::size_t size = 0;
  };
  std::array<Character, 256> characters_;
  std::array<std::int16_t, kEnd> bytes_;  // -1: not in the alphabet
};

/// Remembers the ids of short pieces of text: words recur, and looking one up is far cheaper than
/// merging it. Starts afresh when it holds more than kMaxBytes.
class PieceCache {
 public:
  static constexpr std::size_t kMaxPiece = 64;  // bytes; longer ones are not kept
  static constexpr std::size_t kMaxBytes = 64 << 20;

  /// Appends the piece's ids; false where they are not known.
  bool append(std::string_view piece, std::vector<std::int32_t>& ids) const;
  void put(std::string_view piece, std::span<const std::int32_t> ids);

 private:
  struct Entry {
    std::uint32_t text = 0, ids = 0;  // where its bytes and its ids begin
    std::uint16_t text_size = 0, ids_size = 0;
  };

  FlatMap<Entry> entries_;  // by hash; of two pieces of one hash the first is kept
  std::string texts_;
  std::vector<std::int32_t> ids_;
};

/// What a tokenizer.json says of its BPE model beside vocabulary and merges.
struct BpeOptions {
  std::optional<std::string> unk_token = {};  // for characters that are not in the vocabulary
  bool fuse_unk = false;                      // one unk_token for a run of such characters
  bool byte_fallback = false;                 // or tokens <0x00> to <0xFF> for their bytes
  bool ignore_merges = false;                 // a whole piece that is a token needs no merges
};

/// Byte-pair encoding of pieces of text: the pair of neighbours with the lowest rank is merged
/// until none is left, the leftmost first among equals. Not for use by two threads at once.
class Bpe {
 public:
  using Vocabulary = StringMap<std::int32_t>;
  using Merges = std::vector<std::pair<std::string, std::string>>;

  /// Throws std::runtime_error, naming `where`, for ids that repeat and for merges whose parts or
  /// result are not in the vocabulary.
  Bpe(Vocabulary vocabulary, const Merges& merges, const BpeOptions& options,
      const std::string& where);

  const Vocabulary& vocabulary() const { return vocabulary_; }

  /// Appends the ids of `piece` (well-formed UTF-8). A character that is not in the vocabulary and
  /// for which the model has neither bytes nor unk_token gives no id, as in the reference
  /// implementation. The time is linear in the length for text in words.
  void encode(std::string_view piece, std::vector<std::int32_t>& ids);

 private:
  struct Merge {
    std::int32_t rank = 0;
    std::int32_t id = 0;  // of the merged token
  };

  std::optional<std::int32_t> find(std::string_view token) const;
  const Merge* find_merge(std::int32_t left, std::int32_t right) const;
  /// The size of the longest part at the start of `text` that no merge leaves.
  std::size_t independent_part(std::string_view text) const;
  void encode_part(std::string_view part, std::vector<std::int32_t>& ids);
  void split_characters(std::string_view part, std::vector<std::int32_t>& ids) const;
  void apply_merges(std::vector<std::int32_t>& ids) const;

  Vocabulary vocabulary_;
  FlatMap<Merge> merges_;             // by (left id, right id)
  FlatMap<bool> inner_pairs_;         // neighbouring characters in merged tokens
  FlatMap<std::int32_t> characters_;  // the ids of tokens of one character, by code point
  std::array<std::optional<std::int32_t>, 256> byte_ids_;
  std::optional<std::int32_t> unk_id_;
  BpeOptions options_;
  PieceCache cache_;
};

}  // namespace focus
