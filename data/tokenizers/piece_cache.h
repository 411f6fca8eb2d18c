#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace focus {

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
  struct Slot {
    std::uint64_t hash = 0;
    std::uint32_t text = 0;  // where its bytes begin in texts_
    std::uint32_t ids = 0;   // where its ids begin in ids_
    std::uint16_t text_size = 0;
    std::uint16_t ids_size = 0;
    bool used = false;
  };

  std::size_t place(std::string_view piece, std::uint64_t hash) const;
  void grow();

  std::vector<Slot> slots_;  // a power of two of them, at most half in use
  std::size_t size_ = 0;
  std::string texts_;
  std::vector<std::int32_t> ids_;
};

}  // namespace focus
