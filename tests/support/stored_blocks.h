#pragma once

#include <cstring>
#include <random>
#include <vector>

#include "tests/support/stored_matrix.h"

// Matrices in GGML's blocks, and what their numbers are, one by one and the slow way.
namespace focus {

inline const std::vector<NumberFormat> kBlockFormats = {
    NumberFormat::q8_0, NumberFormat::q4_0, NumberFormat::q4_1,   NumberFormat::q5_0,
    NumberFormat::q5_1, NumberFormat::q2_k, NumberFormat::q3_k,   NumberFormat::q4_k,
    NumberFormat::q5_k, NumberFormat::q6_k, NumberFormat::iq4_nl, NumberFormat::iq4_xs};

/// Where a block's float16 numbers begin.
inline std::vector<std::size_t> half_places(NumberFormat format) {
  switch (format) {
    case NumberFormat::q4_1:
    case NumberFormat::q5_1:
    case NumberFormat::q4_k:
    case NumberFormat::q5_k:
      return {0, 2};
    case NumberFormat::q2_k:
      return {80, 82};
    case NumberFormat::q3_k:
      return {108};
    case NumberFormat::q6_k:
      return {208};
    default:
      return {0};
  }
}

/// d q, and d q + m or d q - m, each step rounded to float32.
inline float block_value(float d, int q, float m = 0, int sign = 0) {
  const volatile float product = d * static_cast<float>(q);
  return sign == 0 ? product : sign > 0 ? product + m : product - m;
}

/// Number i of a block.
inline float block_number(NumberFormat format, const std::byte* block, int i) {
  const auto byte = [&](int at) { return std::to_integer<int>(block[at]); };
  const auto half = [&](int at) {
    const MatrixView view{.data = block + at, .format = NumberFormat::f16};
    return static_cast<float>(number_at(view, 0));
  };
  const auto nibble = [&](int at, bool upper) { return upper ? byte(at) >> 4 : byte(at) & 15; };
  const auto of_32 = [&](int at) { return nibble(at + i % 16, i >= 16); };
  const auto bit = [&](int at) { return byte(at + i / 8) >> i % 8 & 1; };
  const auto two_bits = [&](int at) {
    return byte(at + i / 128 * 32 + i % 32) >> i % 128 / 32 * 2 & 3;
  };
  const auto of_64 = [&](int at) { return nibble(at + i / 64 * 32 + i % 32, i % 64 >= 32); };
  constexpr int kIq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                            1,    13,   25,  38,  53,  69,  89,  113};
  const auto six_bits = [&](int j, int at) {  // at 0: the scale, 4: the minimum
    if (j < 4) return byte(4 + j + at) & 63;
    return nibble(4 + j + 4, at == 4) + 16 * (byte(4 + j - 4 + at) >> 6);
  };
  switch (format) {
    case NumberFormat::q8_0:
      return block_value(half(0), static_cast<std::int8_t>(byte(2 + i)));
    case NumberFormat::q4_0:
      return block_value(half(0), of_32(2) - 8);
    case NumberFormat::q4_1:
      return block_value(half(0), of_32(4), half(2), 1);
    case NumberFormat::q5_0:
      return block_value(half(0), of_32(6) + 16 * bit(2) - 16);
    case NumberFormat::q5_1:
      return block_value(half(0), of_32(8) + 16 * bit(4), half(2), 1);
    case NumberFormat::q2_k: {
      const int s = byte(i / 16);
      return block_value(block_value(half(80), s & 15), two_bits(16), block_value(half(82), s >> 4),
                         -1);
    }
    case NumberFormat::q3_k: {
      const int j = i / 16, low = nibble(96 + j % 8, j >= 8);
      const int s = low + 16 * (byte(96 + 8 + j % 4) >> 2 * (j / 4) & 3);
      const int less = (byte(i % 32) >> i / 32 & 1) == 0 ? 4 : 0;
      return block_value(block_value(half(108), s - 32), two_bits(32) - less);
    }
    case NumberFormat::q4_k:
      return block_value(block_value(half(0), six_bits(i / 32, 0)), of_64(16),
                         block_value(half(2), six_bits(i / 32, 4)), -1);
    case NumberFormat::q5_k:
      return block_value(block_value(half(0), six_bits(i / 32, 0)),
                         of_64(48) + 16 * (byte(16 + i % 32) >> i / 32 & 1),
                         block_value(half(2), six_bits(i / 32, 4)), -1);
    case NumberFormat::q6_k: {
      const int quarter = i % 128 / 32, k = i % 32, at = i / 128;
      const int q = nibble(64 * at + k + 32 * (quarter % 2), quarter >= 2) +
                    16 * (byte(128 + 32 * at + k) >> 2 * quarter & 3);
      return block_value(block_value(half(208), static_cast<std::int8_t>(byte(192 + i / 16))),
                         q - 32);
    }
    case NumberFormat::iq4_nl:
      return block_value(half(0), kIq4[of_32(2)]);
    case NumberFormat::iq4_xs: {
      const int j = i / 32;
      const int s = nibble(4 + j / 2, j % 2 == 1) + 16 * ((byte(2) + 256 * byte(3)) >> 2 * j & 3);
      const int q = nibble(8 + 16 * j + i % 16, i % 32 >= 16);
      return block_value(block_value(half(0), s - 32), kIq4[q]);
    }
    default:
      return 0;
  }
}

/// The numbers of a line, widened the slow way.
inline std::vector<Real> block_numbers_of(NumberFormat format, const std::byte* blocks,
                                          Index count) {
  std::vector<Real> numbers;
  const Index together = block_numbers(format);
  for (Index i = 0; i < count; ++i)
    numbers.push_back(
        static_cast<Real>(block_number(format, blocks + bytes_of(format, i / together * together),
                                       static_cast<int>(i % together))));
  return numbers;
}

/// Any bytes, but for float16 numbers of some size.
inline std::vector<std::byte> random_blocks(NumberFormat format, Index numbers,
                                            std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(bytes_of(format, numbers));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  for (std::size_t at = 0; at < bytes.size(); at += bytes_of(format, block_numbers(format)))
    for (const std::size_t place : half_places(format)) {
      const auto half = static_cast<std::uint16_t>((random() & 0x83ff) | (5 + random() % 4) << 10);
      std::memcpy(bytes.data() + at + place, &half, sizeof(half));
    }
  return bytes;
}

struct BlockLayout {
  Index run = 0, runs = 1;  // rows of a run, of so many fused matrices
  Index rotary_pairs = 0;
};

inline Stored stored_blocks(Index rows, Index cols, NumberFormat format, const BlockLayout& layout,
                            std::uint64_t seed) {
  Stored s;
  s.bytes = random_blocks(format, rows * layout.runs * cols, seed);
  s.view = {.data = s.bytes.data(),
            .format = format,
            .rows = rows,
            .cols = cols,
            .pitch = cols,
            .run = layout.run,
            .run_pitch = layout.run * layout.runs,
            .rotary_pairs = layout.rotary_pairs};
  s.widened = Tensor({rows, cols});
  for (Index i = 0; i < rows; ++i)
    std::ranges::copy(
        block_numbers_of(format, s.bytes.data() + bytes_of(format, s.view.stored_row(i) * cols),
                         cols),
        s.widened.data() + i * cols);
  return s;
}

}  // namespace focus
