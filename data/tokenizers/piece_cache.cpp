#include "data/tokenizers/piece_cache.h"

#include <xxhash.h>

#include <algorithm>

namespace focus {

std::size_t PieceCache::place(std::string_view piece, std::uint64_t hash) const {
  std::size_t i = hash & (slots_.size() - 1);
  while (slots_[i].used) {
    const Slot& slot = slots_[i];
    if (slot.hash == hash && std::string_view(texts_).substr(slot.text, slot.text_size) == piece)
      break;
    i = (i + 1) & (slots_.size() - 1);
  }
  return i;
}

bool PieceCache::append(std::string_view piece, std::vector<std::int32_t>& ids) const {
  if (slots_.empty() || piece.size() > kMaxPiece) return false;
  const Slot& slot = slots_[place(piece, XXH3_64bits(piece.data(), piece.size()))];
  if (!slot.used) return false;
  const auto first = ids_.begin() + slot.ids;
  ids.insert(ids.end(), first, first + slot.ids_size);
  return true;
}

void PieceCache::put(std::string_view piece, std::span<const std::int32_t> ids) {
  if (piece.size() > kMaxPiece || ids.size() > kMaxPiece) return;
  if (texts_.size() + ids_.size() * sizeof(ids_[0]) + slots_.size() * sizeof(Slot) > kMaxBytes) {
    slots_.clear();
    texts_.clear();
    ids_.clear();
    size_ = 0;
  }
  if (2 * (size_ + 1) > slots_.size()) grow();
  const std::uint64_t hash = XXH3_64bits(piece.data(), piece.size());
  Slot& slot = slots_[place(piece, hash)];
  if (slot.used) return;
  slot = {hash,
          static_cast<std::uint32_t>(texts_.size()),
          static_cast<std::uint32_t>(ids_.size()),
          static_cast<std::uint16_t>(piece.size()),
          static_cast<std::uint16_t>(ids.size()),
          true};
  texts_ += piece;
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  ++size_;
}

void PieceCache::grow() {
  std::vector<Slot> old(std::max<std::size_t>(1024, 2 * slots_.size()));
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (!slot.used) continue;
    std::size_t i = slot.hash & (slots_.size() - 1);
    while (slots_[i].used) i = (i + 1) & (slots_.size() - 1);
    slots_[i] = slot;
  }
}

}  // namespace focus
