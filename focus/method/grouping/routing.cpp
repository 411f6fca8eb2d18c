#include "focus/method/grouping/routing.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/base/profile.h"
#include "autograd/eigen.h"
#include "autograd/simd/kernels.h"
#include "focus/method/documents.h"
#include "focus/method/grouping/sinkhorn.h"

namespace focus {
namespace {

using Matrix = RowMatrix<double>;
constexpr Index kRows = 128;  // tokens of a chunk

Eigen::Map<const RowMatrix<Real>> as_matrix(const Tensor& x) {
  return {x.data(), x.rows(), x.cols()};
}

Tensor to_tensor(const Matrix& m, const Shape& shape) {
  Tensor tensor(shape);
  Eigen::Map<RowMatrix<Real>>(tensor.data(), m.rows(), m.cols()) = m.cast<Real>();
  return tensor;
}

/// g_i = softmax_k(L_ik + b_k) for the tokens of one sequence.
void softmax_rows(const double* logits, const double* b, Index tokens, Index groups, double* g) {
  parallel_chunks(tokens, kRows, [=](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      const double* row = logits + i * groups;
      double top = row[0] + b[0], sum = 0;
      for (Index k = 1; k < groups; ++k) top = std::max(top, row[k] + b[k]);
      for (Index k = 0; k < groups; ++k) sum += g[i * groups + k] = std::exp(row[k] + b[k] - top);
      for (Index k = 0; k < groups; ++k) g[i * groups + k] /= sum;
    }
  });
}

/// What backward reads.
struct Kept {
  Tensor h;
  Matrix projection, centroids;                       // in double
  std::shared_ptr<std::vector<double>> vectors;       // h W_g [tokens, routing_dim]
  std::shared_ptr<const std::vector<double>> logits;  // [tokens, groups]
  std::vector<double> g;                              // [tokens, groups]
  std::vector<SinkhornTrace> traces;                  // one a sequence; empty unless `sequence`
  std::vector<Index> starts;                          // of the sequences, and the end
  double temperature = 1;

  Eigen::Map<Matrix> projected() const {
    const Index dim = projection.cols();
    return {vectors->data(), static_cast<Index>(vectors->size()) / dim, dim};
  }
};

void route_backward(const Kept& kept, const Tensor& dg, Grads grads) {
  const Index tokens = kept.projected().rows(), groups = kept.centroids.rows();
  // Through the softmax: dL = g (dg - g·dg).
  Matrix d_logits(tokens, groups);
  parallel_chunks(tokens, kRows, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      double along = 0;
      for (Index k = 0; k < groups; ++k) along += kept.g[i * groups + k] * dg[i * groups + k];
      for (Index k = 0; k < groups; ++k)
        d_logits(i, k) = kept.g[i * groups + k] * (dg[i * groups + k] - along);
    }
  });
  // Through the potentials: db_k = sum_i dL_ik, then back through the rounds.
  for (std::size_t s = 0; s < kept.traces.size(); ++s) {
    const Index first = kept.starts[s];
    const Eigen::VectorXd d_potentials =
        d_logits.middleRows(first, kept.starts[s + 1] - first).colwise().sum();
    sinkhorn_backward(kept.logits->data() + first * groups, kept.traces[s], d_potentials.data(),
                      d_logits.data() + first * groups);
  }
  d_logits /= kept.temperature;  // now dS
  const Matrix d_projected = d_logits * kept.centroids;
  if (grads[2].wanted())
    grads[2].add(
        to_tensor(d_logits.transpose() * kept.projected(), {groups, kept.centroids.cols()}));
  const Index width = kept.projection.rows(), dim = kept.projection.cols();
  if (grads[1].wanted()) {  // dW_g = hᵀ d(h W_g)
    Matrix d_projection(width, dim);
    parallel_chunks(width, 64, [&](Index begin, Index end) {
      const Matrix h = as_matrix(kept.h).middleCols(begin, end - begin).cast<double>();
      simd::kernels().elementwise.product_in_double(end - begin, dim, tokens, h.data(), 1,
                                                    end - begin, d_projected.data(),
                                                    d_projection.data() + begin * dim);
    });
    grads[1].add(to_tensor(d_projection, {width, dim}));
  }
  if (grads[0].wanted()) {  // dh = d(h W_g) W_gᵀ
    Tensor dh(kept.h.shape());
    const Matrix transposed = kept.projection.transpose();
    parallel_chunks(tokens, kRows, [&, out = dh.data()](Index begin, Index end) {
      Matrix rows(end - begin, width);
      simd::kernels().elementwise.product_in_double(end - begin, width, dim,
                                                    d_projected.data() + begin * dim, dim, 1,
                                                    transposed.data(), rows.data());
      Eigen::Map<RowMatrix<Real>>(out + begin * width, end - begin, width) = rows.cast<Real>();
    });
    grads[0].add(dh);
  }
}

}  // namespace

FocusLayer make_focus_layer(const FocusConfig& config, Index hidden_size, Rng& rng) {
  FocusLayer layer{Tensor({hidden_size, config.tokens().routing_dim}),
                   Tensor({config.num_groups, config.tokens().routing_dim}),
                   Tensor::zeros({config.num_groups})};
  const double std = 1 / std::sqrt(static_cast<double>(hidden_size));
  for (Real& w : layer.projection.mutable_value().span()) w = static_cast<Real>(std * rng.normal());
  for (Real& c : layer.centroids.mutable_value().span()) c = static_cast<Real>(rng.normal());
  return layer;
}

Routing route(const Variable& h, const FocusLayer& layer, const FocusConfig& config,
              Balance balance, std::span<const Index> documents) {
  check(h.shape().rank() == 3 && h.dim(2) == layer.projection.dim(0) &&
            layer.projection.dim(1) == layer.centroids.dim(1),
        "route: h {} does not fit projection {} and centroids {}", h.shape(),
        layer.projection.shape(), layer.centroids.shape());
  const Index batch = h.dim(0), seq_len = h.dim(1), tokens = batch * seq_len;
  const Index groups = layer.centroids.dim(0);
  const TokenSettings& settings = config.tokens();
  auto kept = std::make_shared<Kept>();
  kept->h = h.value();
  kept->projection = as_matrix(layer.projection.value()).cast<double>();
  kept->centroids = as_matrix(layer.centroids.value()).cast<double>();
  kept->starts = sequence_starts(batch, seq_len, documents);
  kept->temperature = settings.temperature;
  kept->vectors = std::make_shared<std::vector<double>>(tokens * layer.projection.dim(1));
  const Eigen::Map<Matrix> projected = kept->projected();
  auto logits = std::make_shared<std::vector<double>>(tokens * groups);
  parallel_chunks(tokens, kRows, [&](Index begin, Index end) {
    const Matrix rows = as_matrix(h.value()).middleRows(begin, end - begin).cast<double>();
    simd::kernels().elementwise.product_in_double(
        end - begin, projected.cols(), rows.cols(), rows.data(), rows.cols(), 1,
        kept->projection.data(), kept->vectors->data() + begin * projected.cols());
    Eigen::Map<Matrix>(logits->data() + begin * groups, end - begin, groups) =
        projected.middleRows(begin, end - begin) * kept->centroids.transpose() /
        settings.temperature;
  });
  kept->logits = logits;

  Routing routing{.assignments = {},
                  .logits = logits,
                  .potentials = {},
                  .starts = kept->starts,
                  .vectors = kept->vectors};
  kept->g.resize(logits->size());
  for (std::size_t s = 0; s + 1 < kept->starts.size(); ++s) {
    const Index first = kept->starts[s], count = kept->starts[s + 1] - first;
    std::vector<double> b(groups, 0.0);
    const double* sequence = logits->data() + first * groups;
    if (balance == Balance::sequence) {
      kept->traces.push_back(sinkhorn(sequence, count, groups, settings.sinkhorn_iters));
      std::copy_n(kept->traces.back().potentials(), groups, b.begin());
    } else if (balance == Balance::carried) {
      std::copy_n(layer.potentials.data(), groups, b.begin());
    }
    softmax_rows(sequence, b.data(), count, groups, kept->g.data() + first * groups);
    routing.potentials.insert(routing.potentials.end(), b.begin(), b.end());
  }
  Tensor g({batch, seq_len, groups});
  std::ranges::transform(kept->g, g.data(), [](double x) { return static_cast<Real>(x); });
  const Variable input = config.ablations.stop_gradient ? Variable(h.value()) : h;
  routing.assignments = Variable::from_op(
      "route", g, {input, layer.projection, layer.centroids},
      [kept](const Tensor& dg, Grads grads) { route_backward(*kept, dg, grads); });
  return routing;
}

std::vector<std::uint64_t> membership(const Routing& routing, int top_k) {
  const Tensor& g = routing.assignments.value();
  const Index groups = g.cols(), tokens = g.rows();
  check(top_k >= 1 && top_k <= groups, "membership: top_k {} is invalid for {} groups", top_k,
        groups);
  std::vector<std::uint64_t> masks(tokens);
  parallel_chunks(tokens, 1024, [&](Index begin, Index end) {
    auto next = std::ranges::upper_bound(routing.starts, begin);  // the sequence after i's
    for (Index i = begin; i < end; ++i) {
      while (i >= *next) ++next;
      const double* row = routing.logits->data() + i * groups;
      const double* b = routing.potentials.data() + (next - routing.starts.begin() - 1) * groups;
      std::uint64_t mask = 0;
      for (int n = 0; n < top_k; ++n) {
        Index best = -1;
        for (Index k = 0; k < groups; ++k)
          if (!(mask >> k & 1) && (best < 0 || row[k] + b[k] > row[best] + b[best])) best = k;
        mask |= std::uint64_t{1} << best;
      }
      masks[i] = mask;
    }
  });
  profile_mark("membership");
  return masks;
}

std::vector<std::uint8_t> best_groups(const Routing& routing) {
  std::vector<std::uint8_t> groups;
  for (const std::uint64_t mask : membership(routing, 1))
    groups.push_back(static_cast<std::uint8_t>(std::countr_zero(mask)));
  return groups;
}

std::vector<double> centred_potentials(const std::vector<double>& logits, Index groups,
                                       int rounds) {
  const SinkhornTrace trace = sinkhorn(logits.data(), std::ssize(logits) / groups, groups, rounds);
  std::vector<double> b(trace.potentials(), trace.potentials() + groups);
  const double mean = std::accumulate(b.begin(), b.end(), 0.0) / static_cast<double>(groups);
  for (double& x : b) x -= mean;
  return b;
}

void absorb_potentials(FocusLayer& layer, std::span<const double> centred, double rate) {
  if (layer.updates++ == 0) rate = 1;
  Tensor moved({layer.potentials.size()});
  for (Index k = 0; k < moved.size(); ++k)
    moved.data()[k] = static_cast<Real>((1 - rate) * layer.potentials[k] + rate * centred[k]);
  layer.potentials = moved;
}

}  // namespace focus
