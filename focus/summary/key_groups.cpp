#include "focus/summary/key_groups.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/gemm/gemm.h"
#include "focus/summary/key_classes.h"

namespace focus {
namespace {

constexpr int kRounds = 12;
constexpr double kConfidence = 0.85;  // mean of the largest soft class
constexpr Index kChunk = 1024;        // keys that are gone through at a time

void copy_key(const HeadKeys& keys, Index t, Real* centroid) {
  std::copy_n(keys.key(t), keys.dim, centroid);
}

/// `count` different keys, in the order in which they are drawn.
std::vector<Index> draw_keys(Index tokens, Index count, Rng& rng) {
  std::vector<Index> drawn;
  while (static_cast<Index>(drawn.size()) < count) {
    const auto t = static_cast<Index>(rng.below(static_cast<std::uint64_t>(tokens)));
    if (std::ranges::find(drawn, t) == drawn.end()) drawn.push_back(t);
  }
  return drawn;
}

void k_means(const HeadKeys& keys, Index tokens, Rng rng, std::span<Real> centroids) {
  const Index groups = static_cast<Index>(centroids.size()) / keys.dim;
  Real* next = centroids.data();
  for (const Index t : draw_keys(tokens, groups, rng)) {
    copy_key(keys, t, next);
    next += keys.dim;
  }
  std::vector<Real> scores(static_cast<std::size_t>(kChunk * groups));
  std::vector<double> sums(static_cast<std::size_t>(groups * keys.dim));
  std::vector<Index> sizes(static_cast<std::size_t>(groups));
  for (int round = 0; round < kRounds; ++round) {
    std::ranges::fill(sums, 0.0);
    std::ranges::fill(sizes, 0);
    const std::vector<Real> constants = class_constants(centroids, nullptr, keys.dim);
    for (Index first = 0; first < tokens; first += kChunk) {
      const Index count = std::min(kChunk, tokens - first);
      head_class_scores(keys, first, count, centroids.data(), constants, scores.data(), groups);
      for (Index t = 0; t < count; ++t) {
        const Real* row = scores.data() + t * groups;
        const Index c = first_largest(row, groups);
        ++sizes[static_cast<std::size_t>(c)];
        const Real* key = keys.key(first + t);
        double* sum = sums.data() + c * keys.dim;
        for (Index d = 0; d < keys.dim; ++d) sum[d] += static_cast<double>(key[d]);
      }
    }
    for (Index c = 0; c < groups; ++c) {
      const Index size = sizes[static_cast<std::size_t>(c)];
      Real* centroid = centroids.data() + c * keys.dim;
      if (size == 0) {
        copy_key(keys, draw_keys(tokens, 1, rng).front(), centroid);
        continue;
      }
      for (Index d = 0; d < keys.dim; ++d)
        centroid[d] = static_cast<Real>(sums[static_cast<std::size_t>(c * keys.dim + d)] /
                                        static_cast<double>(size));
    }
  }
}

/// Mean over keys of the largest of softmax(z / tau).
double confidence(const std::vector<Real>& z, Index groups, double tau) {
  double total = 0;
  const Index rows = static_cast<Index>(z.size()) / groups;
  for (Index row = 0; row < rows; ++row) {
    const Real* of_key = z.data() + row * groups;
    const Real most = *std::max_element(of_key, of_key + groups);
    double sum = 0;
    for (Index c = 0; c < groups; ++c) sum += std::exp(static_cast<double>(of_key[c] - most) / tau);
    total += 1 / sum;
  }
  return total / static_cast<double>(rows);
}

/// By bisection on a logarithmic scale; a sample of the keys is enough.
double fitted_temperature(const Tensor& keys, const Tensor& centroids) {
  const Index tokens = std::min<Index>(keys.dim(0), kChunk), kv_heads = keys.dim(1);
  const Index groups = centroids.dim(1), dim = keys.dim(2);
  std::vector<Real> z(static_cast<std::size_t>(kv_heads * tokens * groups));
  for (Index head = 0; head < kv_heads; ++head) {
    const auto of_head = centroids.span().subspan(static_cast<std::size_t>(head * groups * dim),
                                                  static_cast<std::size_t>(groups * dim));
    head_class_scores({keys.data() + head * dim, kv_heads * dim, dim}, 0, tokens, of_head.data(),
                      class_constants(of_head, nullptr, dim), z.data() + head * tokens * groups,
                      groups);
  }
  double low = 1e-6, high = 1e6;
  for (int i = 0; i < 60; ++i) {
    const double middle = std::sqrt(low * high);
    (confidence(z, groups, middle) > kConfidence ? low : high) = middle;
  }
  return std::sqrt(low * high);
}

double standard_deviation(const Tensor& x) {
  double sum = 0, squares = 0;
  for (const Real value : x.span()) {
    sum += static_cast<double>(value);
    squares += static_cast<double>(value) * static_cast<double>(value);
  }
  const auto n = static_cast<double>(x.size());
  return std::sqrt(std::max(0.0, squares / n - sum / n * (sum / n)));
}

}  // namespace

KeyGroups make_key_groups(Index num_groups, Index kv_heads, Index head_dim, Rng& rng) {
  KeyGroups groups;
  Tensor centroids({kv_heads, num_groups, head_dim});
  for (Real& x : centroids.span()) x = static_cast<Real>(rng.normal());
  groups.centroids = Variable(centroids);
  groups.bias = Variable(Tensor::zeros({kv_heads, num_groups}));
  groups.beta = Variable(Tensor::zeros({kv_heads, num_groups}));
  groups.temperature = Tensor::full({1}, 1);
  groups.spread = Tensor::full({1}, 1);
  return groups;
}

void fit_key_groups(KeyGroups& groups, const Tensor& keys, std::uint64_t seed) {
  Tensor& centroids = groups.centroids.mutable_value();
  const Index kv_heads = centroids.dim(0), count = centroids.dim(1), dim = centroids.dim(2);
  check(keys.rank() == 3 && keys.dim(1) == kv_heads && keys.dim(2) == dim,
        "fit: keys {} do not fit centroids {}", keys.shape(), centroids.shape());
  check(keys.dim(0) >= count, "fit: {} tokens for {} groups; give at least one token per group",
        keys.dim(0), count);
  parallel_chunks(kv_heads, 1, [&](Index head, Index) {
    k_means({keys.data() + head * dim, kv_heads * dim, dim}, keys.dim(0),
            Rng(seed + static_cast<std::uint64_t>(head)),
            centroids.span().subspan(static_cast<std::size_t>(head * count * dim),
                                     static_cast<std::size_t>(count * dim)));
  });
  std::ranges::fill(groups.bias.mutable_value().span(), Real(0));
  std::ranges::fill(groups.beta.mutable_value().span(), Real(0));
  groups.temperature.data()[0] = static_cast<Real>(fitted_temperature(keys, centroids));
  groups.spread.data()[0] = static_cast<Real>(standard_deviation(centroids));
  groups.updates = keys.dim(0);
}

}  // namespace focus
