#include "focus/method/grouping/centroids.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "autograd/base/check.h"
#include "autograd/eigen.h"

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
  std::vector<Index> nearest(static_cast<std::size_t>(x.rows()), -1);
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
      changed = changed || nearest[static_cast<std::size_t>(i)] != best;
      nearest[static_cast<std::size_t>(i)] = best;
      sums.row(best) += x.row(i);
    }
    if (!changed) break;
    for (Index k = 0; k < groups; ++k)
      if (const double length = sums.row(k).norm(); length > 0)
        centroids.row(k) = sums.row(k) / length;
  }
  return centroids;
}

}  // namespace

void average_centroids(FocusLayer& layer, const Routing& routing, double rate) {
  Tensor& centroids = layer.centroids.mutable_value();
  const Index groups = centroids.dim(0), dim = centroids.dim(1);
  const auto vectors = vectors_of(routing, dim);
  Matrix sums = Matrix::Zero(groups, dim);
  std::vector<double> sizes(static_cast<std::size_t>(groups), 0.0);
  const std::vector<std::uint64_t> masks = membership(routing, 1);
  for (std::size_t i = 0; i < masks.size(); ++i) {
    const int k = std::countr_zero(masks[i]);
    sums.row(k) += vectors.row(static_cast<Index>(i));
    ++sizes[static_cast<std::size_t>(k)];
  }
  for (Index k = 0; k < groups; ++k) {
    const double size = sizes[static_cast<std::size_t>(k)];
    if (size == 0) continue;
    for (Index d = 0; d < dim; ++d) {
      Real& c = centroids.data()[k * dim + d];
      c = static_cast<Real>((1 - rate) * static_cast<double>(c) + rate * sums(k, d) / size);
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
  layer.potentials = averaged_potentials(
      layer.potentials, {logits.data(), logits.data() + logits.size()}, settings.sinkhorn_iters, 1);
}

}  // namespace focus
