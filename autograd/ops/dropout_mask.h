#pragma once

#include <cstdint>

#include "autograd/base/random.h"
#include "autograd/tensor.h"

namespace focus {

/// Which numbers dropout makes 0: a matter of its key and the number's place alone, so that
/// backward can ask again and threads need not agree.
class DropoutMask {
 public:
  /// probability in [0, 1)
  DropoutMask(double probability, std::uint64_t key)
      : below_(static_cast<std::uint64_t>(probability * 0x1.0p53)),
        start_(mixed(key + kMixStep)),
        kept_(static_cast<Real>(1 / (1 - probability))) {}

  bool active() const { return below_ > 0; }
  /// What number `place` is multiplied with.
  Real factor(Index place) const {
    const std::uint64_t bits = mixed(start_ + static_cast<std::uint64_t>(place) * kMixStep);
    return (bits >> 11) < below_ ? Real(0) : kept_;
  }

 private:
  std::uint64_t below_, start_;
  Real kept_;
};

}  // namespace focus
