#include <algorithm>
#include <cmath>

#include "autograd/base/check.h"
#include "autograd/eigen.h"
#include "autograd/ops.h"
#include "focus/method/grouping/token_grouping.h"

namespace focus {
namespace {

using Matrix = RowMatrix<double>;
constexpr int kMostRounds = 25;

Eigen::Map<const Matrix> vectors_of(const Routing& routing, Index dim) {
  check(routing.vectors != nullptr, "centroids: the routing has no vectors");
  return {routing.vectors->data(), static_cast<Index>(routing.vectors->size()) / dim, dim};
}

/// Rows of length 1; a row of zeros stays.
Matrix on_the_sphere(Matrix rows) {
  for (Index i = 0; i < rows.rows(); ++i)
    if (const double length = rows.row(i).norm(); length > 0) rows.row(i) /= length;
  return rows;
}

/// k-means++: each further seed is drawn in proportion to 1 - cos to the nearest seed so far.
Matrix seeds_of(const Matrix& x, Index groups, Rng& rng) {
  Matrix seeds(groups, x.cols());
  seeds.row(0) = x.row(static_cast<Index>(rng.below(static_cast<std::uint64_t>(x.rows()))));
  Eigen::VectorXd distance = Eigen::VectorXd::Constant(x.rows(), 2);
  for (Index k = 1; k < groups; ++k) {
    double sum = 0;
    for (Index i = 0; i < x.rows(); ++i) {
      distance[i] = std::min(distance[i], std::max(0.0, 1 - x.row(i).dot(seeds.row(k - 1))));
      sum += distance[i];
    }
    double left = rng.uniform() * sum;
    Index selected = 0;
    while (selected + 1 < x.rows() && (left -= distance[selected]) > 0) ++selected;
    seeds.row(k) = x.row(selected);
  }
  return seeds;
}

Matrix spherical_k_means(const Matrix& x, Index groups, Rng& rng) {
  Matrix centroids = seeds_of(x, groups, rng);
  std::vector<Index> nearest(x.rows(), -1);
  for (int round = 0; round < kMostRounds; ++round) {
    bool changed = false;
    Matrix sums = Matrix::Zero(groups, x.cols());
    for (Index i = 0; i < x.rows(); ++i) {
      Index best = 0;
      double highest = x.row(i).dot(centroids.row(0));
      for (Index k = 1; k < groups; ++k)
        if (const double cosine = x.row(i).dot(centroids.row(k)); cosine > highest) {
          highest = cosine;
          best = k;
        }
      changed = changed || nearest[i] != best;
      nearest[i] = best;
      sums.row(best) += x.row(i);
    }
    if (!changed) break;
    for (Index k = 0; k < groups; ++k)
      if (const double length = sums.row(k).norm(); length > 0)
        centroids.row(k) = sums.row(k) / length;
  }
  return centroids;
}

/// The mean of g over the batch.
std::vector<double> mean_assignment(const Tensor& g) {
  std::vector<double> mean(g.cols(), 0.0);
  for (Index i = 0; i < g.rows(); ++i)
    for (std::size_t k = 0; k < mean.size(); ++k)
      mean[k] += static_cast<double>(g[i * g.cols() + static_cast<Index>(k)]);
  for (double& p : mean) p /= static_cast<double>(g.rows());
  return mean;
}

/// x log x, and its derivative where x is not 0: a group that no token has any part in is left
/// there, where the derivative would be -inf.
double x_log_x(double x) { return x > 0 ? x * std::log(x) : 0; }
double x_log_x_slope(double x) { return x > 0 ? std::log(x) + 1 : 0; }

/// A loss of g whose gradient is `slope`.
Variable loss_of(const char* op, double loss, const Variable& g, std::vector<double> slope) {
  Tensor value({1});
  value.data()[0] = static_cast<Real>(loss);
  return Variable::from_op(
      op, value, {g}, [slope = std::move(slope), shape = g.shape()](const Tensor& dy, Grads grads) {
        Tensor dg(shape);
        std::ranges::transform(slope, dg.data(), [&](double x) {
          return static_cast<Real>(static_cast<double>(dy[0]) * x);
        });
        grads[0].add(dg);
      });
}

}  // namespace

void average_centroids(FocusLayer& layer, const Routing& routing, double rate) {
  Tensor& centroids = layer.centroids.mutable_value();
  const Index groups = centroids.dim(0), dim = centroids.dim(1);
  const auto vectors = vectors_of(routing, dim);
  Matrix sums = Matrix::Zero(groups, dim);
  std::vector<double> sizes(groups, 0.0);
  Index token = 0;
  for (const std::uint8_t k : best_groups(routing)) {
    sums.row(k) += vectors.row(token++);
    ++sizes[k];
  }
  for (Index k = 0; k < groups; ++k) {
    for (Index d = 0; d < dim && sizes[k] > 0; ++d) {
      Real& c = centroids.data()[k * dim + d];
      c = static_cast<Real>((1 - rate) * static_cast<double>(c) + rate * sums(k, d) / sizes[k]);
    }
  }
}

void recluster(FocusLayer& layer, const Routing& routing, const TokenSettings& settings,
               std::uint64_t seed) {
  Tensor& centroids = layer.centroids.mutable_value();
  const Index groups = centroids.dim(0), dim = centroids.dim(1);
  const auto vectors = vectors_of(routing, dim);
  double length = 0;
  for (Index k = 0; k < groups; ++k) {
    double squares = 0;
    for (Index d = 0; d < dim; ++d)
      squares += static_cast<double>(centroids[k * dim + d]) * centroids[k * dim + d];
    length += std::sqrt(squares) / static_cast<double>(groups);
  }
  Rng rng(seed);
  const Matrix placed = length * spherical_k_means(on_the_sphere(vectors), groups, rng);
  for (Index k = 0; k < groups; ++k)
    for (Index d = 0; d < dim; ++d) centroids.data()[k * dim + d] = static_cast<Real>(placed(k, d));
  const Matrix logits = vectors * placed.transpose() / settings.temperature;
  std::ranges::transform(centred_potentials({logits.data(), logits.data() + logits.size()}, groups,
                                            settings.sinkhorn_iters),
                         layer.potentials.data(), [](double b) { return static_cast<Real>(b); });
}

Variable balance_loss(const Routing& routing) {
  const Tensor& g = routing.assignments.value();
  const auto groups = static_cast<std::size_t>(g.cols());
  const auto tokens = static_cast<double>(g.rows()), count = static_cast<double>(groups);
  const std::vector<double> p = mean_assignment(g);
  std::vector<double> f(groups, 0.0);
  for (const std::uint8_t k : best_groups(routing)) f[k] += 1 / tokens;
  double loss = 0;
  for (std::size_t k = 0; k < groups; ++k) loss += count * f[k] * p[k];
  std::vector<double> slope(g.size());
  for (std::size_t n = 0; n < slope.size(); ++n) slope[n] = count / tokens * f[n % groups];
  return loss_of("balance_loss", loss, routing.assignments, std::move(slope));
}

Variable entropy_loss(const Variable& g, EntropyOf of) {
  const Tensor& values = g.value();
  const auto groups = static_cast<std::size_t>(values.cols());
  const auto tokens = static_cast<double>(values.rows());
  const std::vector<double> p = mean_assignment(values);
  double negative_entropy = 0;
  if (of == EntropyOf::mean) {
    for (const double x : p) negative_entropy += x_log_x(x);
  } else {
    for (const Real x : values.span()) negative_entropy += x_log_x(static_cast<double>(x)) / tokens;
  }
  std::vector<double> slope;
  for (const Real x : values.span())
    slope.push_back(
        x_log_x_slope(of == EntropyOf::mean ? p[slope.size() % groups] : static_cast<double>(x)) /
        tokens);
  return loss_of("entropy_loss", std::log(static_cast<double>(groups)) + negative_entropy, g,
                 std::move(slope));
}

Variable auxiliary_loss(const Routing& routing, const AblationSettings& settings) {
  Variable sum;
  const auto add_term = [&](double weight, auto&& term) {
    if (weight == 0) return;
    const Variable weighted = scale(term(), static_cast<Real>(weight));
    sum = sum.defined() ? add(sum, weighted) : weighted;
  };
  add_term(settings.balance_loss, [&] { return balance_loss(routing); });
  add_term(settings.entropy_loss,
           [&] { return entropy_loss(routing.assignments, settings.entropy_of); });
  return sum;
}

}  // namespace focus
