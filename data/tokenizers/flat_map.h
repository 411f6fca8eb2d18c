#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace focus {

/// A map from 64-bit keys to small values in one array: a lookup is a multiplication and, nearly
/// always, one cache line. Keys are never removed; kNoKey is no key.
template <class Value>
class FlatMap {
 public:
  static constexpr std::uint64_t kNoKey = ~std::uint64_t{0};

  /// Adds the key, or replaces its value.
  void set(std::uint64_t key, const Value& value) {
    if (2 * (size_ + 1) > slots_.size()) grow();
    Slot& slot = slots_[place(key)];
    if (slot.key == kNoKey) ++size_;
    slot = {key, value};
  }
  /// The value, or null where the key is absent.
  const Value* find(std::uint64_t key) const {
    if (slots_.empty()) return nullptr;
    const Slot& slot = slots_[place(key)];
    return slot.key == kNoKey ? nullptr : &slot.value;
  }
  /// The value, made first where the key is absent. Valid until the next key is added.
  Value& operator[](std::uint64_t key) {
    if (find(key) == nullptr) set(key, Value());
    return slots_[place(key)].value;
  }
  std::size_t size() const { return size_; }
  /// The memory that it takes.
  std::size_t bytes() const { return slots_.size() * sizeof(Slot); }

 private:
  struct Slot {
    std::uint64_t key = kNoKey;
    Value value = {};
  };

  /// Where the key is, or the free slot where it belongs.
  std::size_t place(std::uint64_t key) const {
    std::size_t i = static_cast<std::size_t>((key * 0x9E3779B97F4A7C15u) >> shift_);
    while (slots_[i].key != key && slots_[i].key != kNoKey) i = (i + 1) & (slots_.size() - 1);
    return i;
  }
  void grow() {
    std::vector<Slot> old(std::max<std::size_t>(64, 2 * slots_.size()));
    old.swap(slots_);
    shift_ = 64 - std::countr_zero(slots_.size());
    for (Slot& slot : old)
      if (slot.key != kNoKey) slots_[place(slot.key)] = std::move(slot);
  }

  std::vector<Slot> slots_;  // a power of two of them, at most half in use
  std::size_t size_ = 0;
  int shift_ = 0;
};

}  // namespace focus
