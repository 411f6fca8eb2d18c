// Compiled without fused multiply-adds: every step is rounded to float32, as gguf-py's are.
#include <Eigen/Core>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "autograd/base/check.h"
#include "autograd/gemm/block_formats.h"

namespace focus {
namespace {

constexpr int kNumbers = 32;  // of a block of all these formats
using Integers = std::array<std::uint8_t, kNumbers>;

/// Where the parts of a block are written, one after the other.
class BlockWriter {
 public:
  explicit BlockWriter(std::byte* to) : to_(to) {}

  void half(float x) {
    const auto bits = std::bit_cast<std::uint16_t>(static_cast<Eigen::half>(x));
    std::memcpy(to_, &bits, sizeof(bits));
    to_ += sizeof(bits);
  }
  void bytes(const std::uint8_t* from, std::size_t count) {
    std::memcpy(to_, from, count);
    to_ += count;
  }
  /// Bit 4 of every integer.
  void fifth_bits(const Integers& q) {
    std::array<std::uint8_t, kNumbers / 8> bits{};
    for (std::size_t i = 0; i < kNumbers; ++i)
      bits[i / 8] |= static_cast<std::uint8_t>(q[i] >> 4 << i % 8);
    bytes(bits.data(), bits.size());
  }
  /// The lower nibbles are the first half of the integers, the upper ones the second.
  void nibbles(const Integers& q) {
    std::array<std::uint8_t, kNumbers / 2> pairs;
    for (std::size_t i = 0; i < pairs.size(); ++i)
      pairs[i] = static_cast<std::uint8_t>((q[i] & 15) | (q[i + pairs.size()] & 15) << 4);
    bytes(pairs.data(), pairs.size());
  }

 private:
  std::byte* to_;
};

/// Towards zero, within [0, most]; 0 for NaN.
std::uint8_t whole(float x, int most) {
  if (!(x > 0)) return 0;
  return static_cast<std::uint8_t>(x >= static_cast<float>(most) ? most : static_cast<int>(x));
}

/// 0 if it is missing.
float inverse(float d) {
  const float inverse = 1 / d;
  return std::isfinite(inverse) ? inverse : 0;
}

float farthest_from_zero(const float* x) {
  return *std::max_element(x, x + kNumbers,
                           [](float a, float b) { return std::abs(a) < std::abs(b); });
}

/// q such that x is near d (q - half), where the number farthest from zero has q = 0.
Integers around_zero(const float* x, float d, int half) {
  const float steps = inverse(d), middle = static_cast<float>(half) + 0.5F;
  Integers q;
  for (std::size_t i = 0; i < kNumbers; ++i) q[i] = whole(x[i] * steps + middle, 2 * half - 1);
  return q;
}

/// q such that x is near d q + least.
Integers above_least(const float* x, float d, float least, int most) {
  const float steps = inverse(d);
  Integers q;
  for (std::size_t i = 0; i < kNumbers; ++i) q[i] = whole((x[i] - least) * steps + 0.5F, most);
  return q;
}

void round_block_q8_0(const float* x, BlockWriter to) {
  const float d = std::abs(farthest_from_zero(x)) / 127, steps = inverse(d);
  Integers q;
  for (std::size_t i = 0; i < kNumbers; ++i) {
    const float rounded = std::clamp(std::round(x[i] * steps), -127.F, 127.F);
    q[i] = static_cast<std::uint8_t>(static_cast<int>(std::isnan(rounded) ? 0 : rounded));
  }
  to.half(d);
  to.bytes(q.data(), q.size());
}

void round_block(NumberFormat format, const float* x, BlockWriter to) {
  if (format == NumberFormat::q8_0) return round_block_q8_0(x, to);
  const bool five = format == NumberFormat::q5_0 || format == NumberFormat::q5_1;
  Integers q;
  if (format == NumberFormat::q4_0 || format == NumberFormat::q5_0) {
    const int half = five ? 16 : 8;
    const float d = farthest_from_zero(x) / static_cast<float>(-half);
    q = around_zero(x, d, half);
    to.half(d);
  } else {
    const auto [least, most] = std::minmax_element(x, x + kNumbers);
    const int steps = five ? 31 : 15;
    const float d = (*most - *least) / static_cast<float>(steps);
    q = above_least(x, d, *least, steps);
    to.half(d);
    to.half(*least);
  }
  if (five) to.fifth_bits(q);
  to.nibbles(q);
}

}  // namespace

void round_to_blocks(NumberFormat format, const Real* numbers, Index count, std::byte* to) {
  check(std::ranges::find(kRoundedFormats, format) != kRoundedFormats.end(),
        "values cannot be rounded to {}", name_of(format));
  const std::size_t bytes = bytes_of(format, kNumbers), all = bytes_of(format, count);
  for (std::byte* const end = to + all; to != end; to += bytes, numbers += kNumbers) {
    float x[kNumbers];
    std::transform(numbers, numbers + kNumbers, x, [](Real r) { return static_cast<float>(r); });
    round_block(format, x, BlockWriter(to));
    if (std::all_of(x, x + kNumbers, [](float r) { return std::isfinite(r); })) continue;
    BlockWriter(to).half(std::nanf(""));
  }
}

}  // namespace focus
