#include "focus/method/cache_numbers.h"

#include <array>
#include <cstring>

#include "autograd/gemm/block_formats.h"

namespace focus {
namespace {

constexpr Index kBlock = simd::kQ8Rounded, kPanel = simd::kQ8Panel;

const simd::BlockKernels::Format& q8_0() { return simd::block_kernels().formats[0]; }

/// Rounds x [n], of a block or less: the rest is 0. Returns the scale.
float round_block(const Real* x, Index n, std::int8_t* q, std::int32_t* sums) {
  const simd::BlockKernels& kernels = simd::block_kernels();
  if (n == kBlock) return kernels.round(x, q, sums);
  std::array<Real, kBlock> whole{};
  std::copy_n(x, n, whole.begin());
  return kernels.round(whole.data(), q, sums);
}

/// Calls f(block, x from there on, how many of its numbers x has) for each block of x [n].
void for_blocks(const Real* x, Index n, auto&& f) {
  for (Index first = 0; first < n; first += kBlock)
    f(first / kBlock, x + first, std::min(kBlock, n - first));
}

}  // namespace

void Q8Queries::round(Index rows, Index n, const Real* x) {
  depth_ = padded_in_cache(CacheDtype::q8_0, n);
  const Index blocks = depth_ / kBlock;
  if (std::ssize(q_) < rows * depth_) {
    q_.resize(rows * depth_);
    scales_.resize(rows * blocks);
    of_halves_.resize(2 * rows * blocks);
    begins_.resize(rows * blocks);
  }
  for (Index i = 0; i < rows; ++i)
    for_blocks(x + i * n, n, [&](Index block, const Real* numbers, Index there) {
      const Index at = i * blocks + block;
      std::int32_t sums[2];
      const float scale = round_block(numbers, there, q_.data() + at * kBlock, sums);
      scales_[at] = of_halves_[2 * at] = of_halves_[2 * at + 1] = scale;
      begins_[at] = -q8_0().more * (sums[0] + sums[1]);
    });
}

Q8Columns::Q8Columns(Index panels, Index head_dim)
    : depth_(padded_in_cache(CacheDtype::q8_0, head_dim)),
      q_(panels * depth_ * kPanel),
      scales_(panels * depth_ / kBlock * kPanel) {}

void Q8Columns::put(const Real* x, Index n, Index panel, Index column) {
  for_blocks(x, n, [&](Index block, const Real* numbers, Index there) {
    std::int8_t q[kBlock];
    std::int32_t sums[2];
    const Index row = panel * depth_ / kBlock + block;
    scales_[row * kPanel + column] = round_block(numbers, there, q, sums);
    for (Index i = 0; i < kBlock; ++i)
      q_[row * kBlock * kPanel + (i / 4 * kPanel + column) * 4 + i % 4] =
          static_cast<std::int8_t>(q[i] + q8_0().more);
  });
}

void Q8Columns::multiply(Index m, const simd::Q8Rows& queries, Index panel, Real* c,
                         Index ldc) const {
  const Index row = panel * depth_ / kBlock;
  q8_0().product_q8(m, queries,
                    {q_.data() + row * kBlock * kPanel, scales_.data() + row * kPanel, nullptr}, c,
                    ldc, kPanel, {});
}

const simd::BlockKernels::Format& CacheNumbers::format() const {
  return simd::block_kernels().formats[dtype_ == CacheDtype::q4 ? 1 : 0];
}

void CacheNumbers::put_blocks(const Real* x, Index n, Index at) {
  for_blocks(x, n, [&](Index block, const Real* numbers, Index there) {
    std::uint8_t* const to = blocks_.data() + stored(at) + block * block_bytes();
    if (dtype_ == CacheDtype::q4) {
      std::array<Real, kBlock> whole{};
      std::copy_n(numbers, there, whole.begin());
      return round_to_blocks(NumberFormat::q4_0, whole.data(), kBlock,
                             reinterpret_cast<std::byte*>(to));
    }
    std::int8_t q[kBlock];
    std::int32_t sums[2];
    const Real scale = round_block(numbers, there, q, sums);
    std::uint16_t rounded;
    simd::kernels().round_f16(&scale, 1, &rounded);
    std::memcpy(to, &rounded, sizeof(rounded));
    std::memcpy(to + sizeof(rounded), q, sizeof(q));
  });
}

void CacheNumbers::widen_blocks(Index first, Index n, Real* to) const {
  format().widen(blocks_.data() + stored(first), n / kBlock, to);
}

void CacheNumbers::multiply_blocks(Index m, Index columns, Index depth, const Real* a, Index a_row,
                                   Panels panels, Index first, Real* c, Index ldc, bool add) const {
  constexpr Index kAtOnce = 64;  // rows: they stay in the first-level cache
  thread_local AlignedVector<Real> wide;
  for (Index row = 0; row < depth; row += kAtOnce) {
    const Index rows = std::min(kAtOnce, depth - row);
    const Real* const numbers =
        read(panels.at + (first + row) * panels.stride, rows * panels.stride, wide);
    simd::kernels().product(m, columns, rows, a + row, a_row, 1,
                            {numbers, rows, panels.columns, 0, panels.stride}, 0, c, ldc,
                            {.any = add || row > 0});
  }
}

void CacheNumbers::dot_blocks(const Real* x, Index count, Index at, Index stride, Index n,
                              Real* sums) const {
  thread_local Q8Queries query;
  query.round(1, n, x);
  const Index blocks = padded_in_cache(dtype_, n) / kBlock;
  const simd::Q8Row row = query.first();
  for (Index i = 0; i < count; ++i) {
    float sum;
    format().dot_q8[0](blocks_.data() + stored(at + i * stride), blocks, &row, &sum);
    sums[i] = static_cast<Real>(sum);
  }
}

}  // namespace focus
