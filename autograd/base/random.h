#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "autograd/base/types.h"

namespace focus {

inline constexpr std::uint64_t kMixStep = 0x9e3779b97f4a7c15ULL;
/// splitmix64's finaliser (Steele et al. 2014): numbers kMixStep apart in, well-mixed bits out.
inline std::uint64_t mixed(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

/// xoshiro256++ (Blackman, Vigna 2019), seeded by splitmix64. The same numbers on every platform,
/// and four words of state that a checkpoint can hold.
class Rng {
 public:
  using State = std::array<std::uint64_t, 4>;

  explicit Rng(std::uint64_t seed = 0) {
    for (auto& word : state_) {
      seed += kMixStep;
      word = mixed(seed);
    }
  }

  std::uint64_t next() {
    const auto rotl = [](std::uint64_t x, int k) { return (x << k) | (x >> (64 - k)); };
    const std::uint64_t result = rotl(state_[0] + state_[3], 23) + state_[0];
    const std::uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = rotl(state_[3], 45);
    return result;
  }

  /// Uniform in [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

  /// Uniform in {0, ..., n-1}; n > 0. The bias of the multiply-shift is below n / 2^64.
  std::uint64_t below(std::uint64_t n) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Wide>(next()) * n) >> 64);
  }

  /// Standard normal (Box-Muller, one of the pair used, so that the state is the four words alone).
  double normal() {
    const double u = 1.0 - uniform();  // in (0, 1]: the logarithm is finite
    return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * uniform());
  }

  const State& state() const { return state_; }

 private:
  State state_{};
};

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
