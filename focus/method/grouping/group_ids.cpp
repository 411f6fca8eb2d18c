#include "focus/method/grouping/group_ids.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/gemm/gemm.h"
#include "autograd/ops.h"
#include "autograd/simd/kernels.h"
#include "focus/method/config.h"

namespace focus {
namespace {

struct ScoreSizes {
  Index tokens, heads, head_dim, groups;
};

ScoreSizes sizes_of(const Tensor& k, const Tensor& centroids, const Tensor& bias) {
  check(k.rank() == 4 && centroids.rank() == 3 && centroids.dim(0) == k.dim(2) &&
            centroids.dim(2) == k.dim(3) && bias.rank() == 2 && bias.dim(0) == centroids.dim(0) &&
            bias.dim(1) == centroids.dim(1),
        "class_scores: k {}, centroids {} and bias {} do not fit ([batch, seq_len, kv_heads, "
        "head_dim], [kv_heads, groups, head_dim], [kv_heads, groups])",
        k.shape(), centroids.shape(), bias.shape());
  check(centroids.dim(1) >= 1 && centroids.dim(1) <= kMaxKeyGroups,
        "class_scores: {} groups; expected 1 to {}", centroids.dim(1), kMaxKeyGroups);
  return {k.dim(0) * k.dim(1), k.dim(2), k.dim(3), centroids.dim(1)};
}

}  // namespace

Index first_largest(const Real* x, Index n) {
  constexpr Index kLanes = 8;  // each goes through every eighth number
  if (n < kLanes) return std::max_element(x, x + n) - x;
  std::array<Real, kLanes> largest;
  std::array<std::int32_t, kLanes> place;
  std::copy_n(x, kLanes, largest.begin());
  std::iota(place.begin(), place.end(), 0);
  for (Index i = kLanes; i + kLanes <= n; i += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const auto at = static_cast<std::int32_t>(i) + static_cast<std::int32_t>(lane);
      const bool more = x[at] > largest[lane];
      largest[lane] = more ? x[at] : largest[lane];
      place[lane] = more ? at : place[lane];
    }
  Index best = place[0];
  for (const Index at : place)
    if (x[at] > x[best] || (x[at] == x[best] && at < best)) best = at;
  for (Index i = n / kLanes * kLanes; i < n; ++i)
    if (x[i] > x[best]) best = i;
  return best;
}

std::vector<Real> group_constants(std::span<const Real> centroids, const Real* bias, Index dim) {
  std::vector<Real> constants(centroids.size() / dim);
  const Real* c = centroids.data();
  for (std::size_t row = 0; row < constants.size(); ++row, c += dim) {
    double squares = 0;
    for (Index d = 0; d < dim; ++d)
      squares += static_cast<double>(c[d]) * static_cast<double>(c[d]);
    const double b = bias != nullptr ? static_cast<double>(bias[row]) : 0;
    constants[row] = static_cast<Real>(b - squares / 2);
  }
  return constants;
}

void head_group_scores(const HeadKeys& keys, Index first, Index count, const Real* centroids,
                       std::span<const Real> constants, Real* z, Index ldz) {
  for (Index t = 0; t < count; ++t) std::ranges::copy(constants, z + t * ldz);
  serial::gemm_nt(count, std::ssize(constants), keys.dim, keys.key(first), keys.stride, centroids,
                  keys.dim, z, ldz, Into::add);
}

GroupIds group_ids_of(const Variable& z, double tau) {
  check(z.shape().rank() == 4 && z.dim(3) >= 1 && z.dim(3) <= kMaxKeyGroups,
        "classes: scores {} are not [batch, seq_len, heads, groups] of 1 to {} groups", z.shape(),
        kMaxKeyGroups);
  GroupIds result{.groups = z.dim(3), .heads = z.dim(2), .ids = {}};
  if (grad_enabled() && z.requires_grad())
    result.shares = softmax(scale(z, static_cast<Real>(1 / tau)));
  const Index rows = z.value().rows();
  result.ids.resize(rows);
  parallel_chunks(rows, rows_per_chunk(result.groups), [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row)
      result.ids[row] = static_cast<std::uint8_t>(
          first_largest(z.value().data() + row * result.groups, result.groups));
  });
  return result;
}

Variable group_scores(const Variable& k, const Variable& centroids, const Variable& bias) {
  const ScoreSizes s = sizes_of(k.value(), centroids.value(), bias.value());
  const std::vector<Real> constants =
      group_constants(centroids.value().span(), bias.value().data(), s.head_dim);
  Tensor z({k.dim(0), k.dim(1), s.heads, s.groups});
  parallel_chunks(s.tokens, rows_per_chunk(s.heads * s.groups), [&](Index begin, Index end) {
    for (Index head = 0; head < s.heads; ++head)
      head_group_scores({k.value().data() + head * s.head_dim, s.heads * s.head_dim, s.head_dim},
                        begin, end - begin, centroids.value().data() + head * s.groups * s.head_dim,
                        std::span(constants).subspan(head * s.groups, s.groups),
                        z.data() + (begin * s.heads + head) * s.groups, s.heads * s.groups);
  });
  return Variable::from_op(
      "class_scores", z, {k, centroids, bias},
      [s, keys = k.value(), c = centroids.value()](const Tensor& dz, Grads grads) {
        const Index ldz = s.heads * s.groups, ldk = s.heads * s.head_dim;
        Tensor sums({s.heads, s.groups});  // of dz over the tokens
        for (Index i = 0; i < sums.size(); ++i) {
          double sum = 0;
          for (Index t = 0; t < s.tokens; ++t) sum += dz[t * ldz + i];
          sums.data()[i] = static_cast<Real>(sum);
        }
        if (grads[0].wanted()) {  // dk = dz C
          Tensor dk(keys.shape());
          for (Index head = 0; head < s.heads; ++head)
            gemm(s.tokens, s.head_dim, s.groups, dz.data() + head * s.groups, ldz,
                 c.data() + head * s.groups * s.head_dim, s.head_dim, dk.data() + head * s.head_dim,
                 ldk);
          grads[0].add(dk);
        }
        if (grads[1].wanted()) {  // dC_c = sum_j dz_jc (k_j - C_c)
          Tensor dc(c.shape());
          for (Index head = 0; head < s.heads; ++head) {
            Real* to = dc.data() + head * s.groups * s.head_dim;
            for (Index i = 0; i < s.groups * s.head_dim; ++i)
              to[i] = -sums[head * s.groups + i / s.head_dim] * c[head * s.groups * s.head_dim + i];
            gemm_tn(s.groups, s.head_dim, s.tokens, dz.data() + head * s.groups, ldz,
                    keys.data() + head * s.head_dim, ldk, to, s.head_dim, Into::add);
          }
          grads[1].add(dc);
        }
        if (grads[2].wanted()) grads[2].add(sums);
      });
}

GroupIds nearest_groups(const Tensor& k, const Tensor& centroids, const Tensor& bias,
                        std::span<const Real> constants) {
  // A tile of tokens at a time, its scores [groups, tokens]: a vector holds tokens.
  constexpr Index kTokens = 64, kTiles = 4;
  const ScoreSizes s = sizes_of(k, centroids, bias);
  std::vector<Real> own;
  if (constants.empty())
    constants = own = group_constants(centroids.span(), bias.data(), s.head_dim);
  GroupIds result{.groups = s.groups, .heads = s.heads, .ids = {}};
  result.ids.resize(s.tokens * s.heads);
  parallel_chunks(s.tokens, kTiles * kTokens, [&](Index begin, Index end) {
    const simd::Kernels& kernels = simd::kernels();
    Tensor keys({s.head_dim, kTokens}), z({s.groups, kTokens});
    std::array<simd::Lane, kTokens> place{};
    for (Index first = begin; first < end; first += kTokens)
      for (Index head = 0; head < s.heads; ++head) {
        const Index rows = std::min(kTokens, end - first), columns = simd::padded(kernels, rows);
        kernels.pack_transposed(k.data() + (first * s.heads + head) * s.head_dim,
                                s.heads * s.head_dim, rows, s.head_dim, 1, keys.data());
        const Real* constant = constants.data() + head * s.groups;
        for (Index c = 0; c < s.groups; ++c)
          std::fill_n(z.data() + c * kTokens, columns, constant[c]);
        kernels.product(s.groups, columns, s.head_dim,
                        centroids.data() + head * s.groups * s.head_dim, s.head_dim, 1,
                        {keys.data(), s.head_dim, columns}, 0, z.data(), kTokens, {.any = true});
        count_multiply_adds(static_cast<std::uint64_t>(s.groups * rows * s.head_dim));
        kernels.largest_rows(s.groups, columns, z.data(), kTokens, place.data());
        for (Index t = 0; t < rows; ++t)
          result.ids[(first + t) * s.heads + head] = static_cast<std::uint8_t>(place[t]);
      }
  });
  return result;
}

}  // namespace focus
