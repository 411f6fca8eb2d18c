#include "focus/method/grouping/key_grouping.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/simd/kernels.h"
#include "focus/method/grouping/group_ids.h"

namespace focus {
namespace {

constexpr int kRounds = 12;
constexpr double kConfidence = 0.85;  // mean of the largest share
constexpr Index kSample = 1024;       // keys that a temperature is fitted to

HeadKeys keys_of(const Tensor& keys, Index head) {
  const Index dim = keys.dim(2);
  return {keys.data() + head * dim, keys.dim(1) * dim, dim};
}
/// A head's, [groups, head_dim], of centroids [kv_heads, groups, head_dim].
std::span<Real> centroids_of(Tensor& centroids, Index head) {
  const auto size = static_cast<std::size_t>(centroids.dim(1) * centroids.dim(2));
  return centroids.span().subspan(head * size, size);
}

/// `count` different keys, in the order in which they are drawn.
std::vector<Index> draw_keys(Index tokens, Index count, Rng& rng) {
  std::vector<Index> drawn;
  while (std::ssize(drawn) < count) {
    const auto t = static_cast<Index>(rng.below(static_cast<std::uint64_t>(tokens)));
    if (std::ranges::find(drawn, t) == drawn.end()) drawn.push_back(t);
  }
  return drawn;
}

/// Each centroid becomes the mean of the keys of its group, or without one a key that is drawn.
void move_centroids(const HeadKeys& keys, GroupIdView group_ids, Index tokens, Rng& rng,
                    std::span<Real> centroids) {
  const Index groups = std::ssize(centroids) / keys.dim;
  constexpr Index kRun = 256;  // keys whose sums are Real
  const simd::Kernels& kernels = simd::kernels();
  std::vector<double> sums(centroids.size(), 0.0);
  std::vector<Real> of_run(centroids.size());
  std::vector<Index> sizes(groups, 0);
  for (Index first = 0; first < tokens; first += kRun) {
    std::ranges::fill(of_run, Real(0));
    for (Index t = first; t < std::min(tokens, first + kRun); ++t) {
      const Index c = group_ids[t];
      ++sizes[c];
      kernels.scale_row(keys.key(t), 1, keys.dim, of_run.data() + c * keys.dim, true);
    }
    std::ranges::transform(sums, of_run, sums.begin(),
                           [](double sum, Real of) { return sum + static_cast<double>(of); });
  }
  for (Index c = 0; c < groups; ++c) {
    const Index size = sizes[c];
    Real* centroid = centroids.data() + c * keys.dim;
    if (size == 0) {
      std::copy_n(keys.key(draw_keys(tokens, 1, rng).front()), keys.dim, centroid);
      continue;
    }
    for (Index d = 0; d < keys.dim; ++d)
      centroid[d] = static_cast<Real>(sums[c * keys.dim + d] / static_cast<double>(size));
  }
}

/// All heads side by side, keys [tokens, kv_heads, head_dim]; each head has random numbers of its
/// own.
void k_means(const Tensor& keys, std::uint64_t seed, Tensor& centroids) {
  const Index tokens = keys.dim(0), kv_heads = keys.dim(1), dim = keys.dim(2);
  const Index groups = centroids.dim(1);
  std::vector<Rng> rngs;
  for (Index head = 0; head < kv_heads; ++head) {
    rngs.emplace_back(seed + static_cast<std::uint64_t>(head));
    Real* next = centroids_of(centroids, head).data();
    for (const Index t : draw_keys(tokens, groups, rngs.back()))
      next = std::copy_n(keys_of(keys, head).key(t), dim, next);
  }
  const Tensor in_one_sequence = keys.reshape({1, tokens, kv_heads, dim});
  const Tensor no_bias = Tensor::zeros({kv_heads, groups});
  for (int round = 0; round < kRounds; ++round) {
    const GroupIds found = nearest_groups(in_one_sequence, centroids, no_bias);
    parallel_chunks(kv_heads, 1, [&](Index head, Index) {
      move_centroids(keys_of(keys, head), {found.ids.data() + head, kv_heads}, tokens, rngs[head],
                     centroids_of(centroids, head));
    });
  }
}

/// By bisection on a logarithmic scale, to a millionth, of what makes the mean over keys of the
/// largest of softmax(z / tau) kConfidence; a sample of the keys is enough.
double fitted_temperature(const Tensor& keys, Tensor& centroids) {
  const Index tokens = std::min<Index>(keys.dim(0), kSample), kv_heads = keys.dim(1);
  const Index groups = centroids.dim(1), dim = keys.dim(2), rows = kv_heads * tokens;
  const simd::Kernels& kernels = simd::kernels();
  const Index columns = simd::padded(kernels, groups);
  constexpr Real kNone = -std::numeric_limits<Real>::infinity();
  std::vector<Real> z(rows * groups);  // less each row's largest
  parallel_chunks(kv_heads, 1, [&](Index head, Index) {
    const std::span<const Real> of_head = centroids_of(centroids, head);
    Real* scores = z.data() + head * tokens * groups;
    head_group_scores(keys_of(keys, head), 0, tokens, of_head.data(),
                      group_constants(of_head, nullptr, dim), scores, groups);
    for (Index t = 0; t < tokens; ++t, scores += groups) {
      const Real most = scores[first_largest(scores, groups)];
      for (Index c = 0; c < groups; ++c) scores[c] -= most;
    }
  });
  std::vector<Real> largest(rows);
  const auto confidence = [&](double tau) {
    parallel_chunks(rows, kSample / 8, [&](Index begin, Index end) {
      std::vector<Real> scaled(columns, kNone);
      for (Index row = begin; row < end; ++row) {
        kernels.scale_row(z.data() + row * groups, static_cast<Real>(1 / tau), groups,
                          scaled.data(), false);
        Real most = 0, sum = 0;
        kernels.softmax_row(scaled.data(), columns, most, sum);
        std::fill(scaled.begin() + groups, scaled.end(), kNone);
        largest[row] = 1 / sum;
      }
    });
    return std::accumulate(largest.begin(), largest.end(), 0.0) / static_cast<double>(rows);
  };
  double low = 1e-6, high = 1e6;
  while (high / low > 1 + 1e-6) {
    const double middle = std::sqrt(low * high);
    (confidence(middle) > kConfidence ? low : high) = middle;
  }
  return std::sqrt(low * high);
}

double standard_deviation(const Tensor& x) {
  double sum = 0, squares = 0;
  for (const Real value : x.span()) {
    sum += value;
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
  groups.summary_bias = Variable(Tensor::zeros({kv_heads, num_groups}));
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
  k_means(keys, seed, centroids);
  std::ranges::fill(groups.bias.mutable_value().span(), Real(0));
  std::ranges::fill(groups.summary_bias.mutable_value().span(), Real(0));
  groups.temperature.data()[0] = static_cast<Real>(fitted_temperature(keys, centroids));
  groups.spread.data()[0] = static_cast<Real>(standard_deviation(centroids));
  groups.updates = keys.dim(0);
}

KeyGrouping::KeyGrouping(const FocusConfig& config, const FocusShape& shape, Rng& rng)
    : GroupingWith(config.num_groups), settings_(config.keys()), heads_(shape.kv_heads) {
  constants_.resize(shape.num_layers);
  for (Index i = 0; i < shape.num_layers; ++i) {
    layers_.push_back(make_key_groups(num_groups(), shape.kv_heads, shape.head_dim, rng));
    if (settings_.head_budgets == HeadBudgets::equal) continue;
    layers_.back().needs = Tensor::full({shape.heads}, 1);
    layers_.back().summary_width = Tensor::zeros({shape.heads});
  }
}

GroupIds KeyGrouping::group_ids(const MechanismInputs& in, Balance) {
  const KeyGroups& groups = layers_[in.layer];
  // The keys are a constant of their groups: what they change in them is not what they are for.
  const Variable keys(in.k.value());
  if (grad_enabled() && groups.centroids.requires_grad())
    return group_ids_of(group_scores(keys, groups.centroids, groups.bias),
                        static_cast<double>(groups.temperature[0]));
  const Tensor &centroids = groups.centroids.value(), &bias = groups.bias.value();
  std::vector<Real>& constants = constants_[in.layer];
  if (in.first_position == 0 || constants.empty())
    constants = group_constants(centroids.span(), bias.data(), centroids.dim(2));
  return nearest_groups(keys.value(), centroids, bias, constants);
}

GroupShares KeyGrouping::shares(const MechanismInputs& in, Balance) {
  const KeyGroups& groups = layers_[in.layer];
  const Variable keys(in.k.value());
  GroupIds group_ids = nearest_groups(keys.value(), groups.centroids.value(), groups.bias.value());
  const Tensor z = group_scores(keys, groups.centroids, groups.bias).value();
  const auto tau = static_cast<double>(groups.temperature[0]);
  GroupShares found{.heads = group_ids.heads,
                    .groups = group_ids.groups,
                    .ids = std::move(group_ids.ids),
                    .shares = std::vector<double>(z.size())};
  for (Index row = 0; row < z.rows(); ++row) {
    const Real* scores = z.data() + row * z.cols();
    double* shares = found.shares.data() + row * z.cols();
    const auto top = static_cast<double>(*std::max_element(scores, scores + z.cols()));
    double sum = 0;
    for (Index k = 0; k < z.cols(); ++k)
      sum += shares[k] = std::exp((static_cast<double>(scores[k]) - top) / tau);
    for (Index k = 0; k < z.cols(); ++k) shares[k] /= sum;
  }
  return found;
}

double KeyGrouping::lr_factor(const std::string& name) const {
  if (name.ends_with(".beta")) return 0.5;
  for (std::size_t i = 0; i < layers_.size(); ++i)
    if (name == fmt::format("layers.{}.centroids", i))
      return 2 * static_cast<double>(layers_[i].spread[0]);
  return 1;
}

Index KeyGrouping::tokens_to_fit(std::int64_t steps_done) const {
  if (layers_.front().updates > 0) return 0;
  return settings_.fit_step && *settings_.fit_step <= steps_done ? settings_.fit_tokens : 0;
}

void KeyGrouping::fit(Index layer, const Tensor& keys, std::uint64_t seed) {
  fit_key_groups(layers_[layer], keys, seed + static_cast<std::uint64_t>(layer * heads_));
}

GroupingKind key_grouping() {
  return {.name = "keys",
          .help = "groups of keys: each key head's keys, by the nearest centroid",
          .defaults = KeySettings{},
          .most_groups = kMaxKeyGroups,
          .groups_tokens = false,
          .is_per_head = true,
          .tensors =
              [](const FocusConfig& config, const FocusShape& shape) {
                const Index groups = config.num_groups, heads = shape.kv_heads;
                std::vector<LayerTensor> tensors{{"centroids", {heads, groups, shape.head_dim}},
                                                 {"bias", {heads, groups}},
                                                 {"beta", {heads, groups}},
                                                 {"temperature", {1}, false},
                                                 {"spread", {1}, false}};
                if (config.keys().head_budgets == HeadBudgets::measured)
                  for (const std::string_view measured : {kNeeds, kSummaryWidth})
                    tensors.push_back({measured, {shape.heads}, false});
                return tensors;
              },
          .make = make_grouping<KeyGrouping>,
          .needs_no_step = [](const FocusConfig& config) { return config.keys().fit_step == 0; },
          .attention_of = [](const FocusConfig& config) -> AttentionSpec {
            return {.summary = {.head_budgets = config.keys().head_budgets}};
          }};
}

}  // namespace focus
