#include <cmath>
#include <vector>

#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/gemm/gemm.h"
#include "autograd/ops.h"
#include "autograd/ops/weight_products.h"
#include "autograd/simd/kernels.h"

namespace focus {
namespace {

/// Rows of logits that exist at once: 512 rows of a 50,257-token vocabulary are 103 MB.
constexpr Index kChunkRows = 512;

/// -log softmax(logits)[target], of soft-capped logits where there is a cap: they are left in the
/// row then. With a share, the row becomes the gradient of share times that: share (softmax -
/// onehot), through the cap.
double row_loss(Real* logits, Index vocab, std::int32_t target, Real softcap, Real share = 0) {
  const auto& kernels = simd::kernels().elementwise;
  std::vector<Real> slope;  // of the cap, whose logits the gradient takes the place of
  if (softcap > 0) {
    if (share != 0) slope.resize(vocab);
    soft_cap(logits, vocab, softcap, share != 0 ? slope.data() : nullptr);
  }
  const Real logit = logits[target];
  Real max = 0;
  const double sum = kernels.exp_sum(logits, share != 0 ? logits : nullptr, vocab, max);
  if (share != 0) {
    kernels.affine(logits, static_cast<Real>(share / sum), 0, logits, vocab);
    logits[target] -= share;
    if (softcap > 0) kernels.multiply(logits, slope.data(), logits, vocab);
  }
  return std::log(sum) + (static_cast<double>(max) - static_cast<double>(logit));
}

/// KL(p || q) of p = softmax(reference), q = softmax(logits), soft-capped both where there is a
/// cap: sum p (x - y) - (lse x - lse y). With a share the logits become the gradient of share times
/// that: share (q - p), through the cap.
double row_divergence(Real* reference, Real* logits, Index vocab, Real softcap, Real share = 0) {
  const auto& kernels = simd::kernels().elementwise;
  std::vector<Real> slope, p(static_cast<std::size_t>(vocab));
  if (softcap > 0) {
    if (share != 0) slope.resize(vocab);
    soft_cap(reference, vocab, softcap, nullptr);
    soft_cap(logits, vocab, softcap, share != 0 ? slope.data() : nullptr);
  }
  Real max_p = 0, max_q = 0;
  const double sum_p = kernels.exp_sum(reference, p.data(), vocab, max_p);
  double along = 0;
  for (Index i = 0; i < vocab; ++i)
    along += static_cast<double>(p[i]) *
             (static_cast<double>(reference[i]) - static_cast<double>(logits[i]));
  const double sum_q = kernels.exp_sum(logits, share != 0 ? logits : nullptr, vocab, max_q);
  if (share != 0) {
    const auto of_q = static_cast<Real>(share / sum_q), of_p = static_cast<Real>(share / sum_p);
    for (Index i = 0; i < vocab; ++i) logits[i] = of_q * logits[i] - of_p * p[i];
    if (softcap > 0) kernels.multiply(logits, slope.data(), logits, vocab);
  }
  return along / sum_p - (std::log(sum_p) + static_cast<double>(max_p)) +
         (std::log(sum_q) + static_cast<double>(max_q));
}

/// Calls f(first row, rows) for each chunk of rows.
template <class F>
void for_each_chunk(Index rows, F&& f) {
  for (Index begin = 0; begin < rows; begin += kChunkRows)
    f(begin, std::min(kChunkRows, rows - begin));
}

/// The divergence of each row. With a share, dx and dw, where defined, become the gradients of
/// share times their sum: computed here, while each chunk of logits exists, as the cross-entropy's
/// are.
std::vector<double> divergences(const Tensor& x, const Tensor& reference, const Weight& weight,
                                const Weight& reference_weight, Real softcap, Real share = 0,
                                Tensor dx = {}, Tensor dw = {}) {
  check(softcap >= 0 && weight.shape().rank() == 2 && x.cols() == weight.dim(1) &&
            x.shape() == reference.shape() && reference_weight.shape() == weight.shape(),
        "linear_kl_divergence: x {} and reference {} do not fit weight {} ([vocab, hidden])",
        x.shape(), reference.shape(), weight.shape());
  const Index rows = x.rows(), hidden = x.cols(), vocab = weight.dim(0);
  const ProductWeight read(weight);
  const ProductWeight read_reference(reference_weight);
  const bool in_bf16 = weight.multiplies_in_bf16();
  std::vector<double> of_rows(rows);
  Tensor logits({std::min(rows, kChunkRows), vocab}), expected(logits.shape());
  for_each_chunk(rows, [&](Index begin, Index n) {
    const ProductRows x_rows(n, hidden, x.data() + begin * hidden, in_bf16);
    weight_product(x_rows, read, logits.data());
    weight_product(
        {n, hidden, reference.data() + begin * hidden, reference_weight.multiplies_in_bf16()},
        read_reference, expected.data());
    parallel_chunks(n, 4, [&](Index first, Index last) {
      for (Index r = first; r < last; ++r)
        of_rows[begin + r] = row_divergence(expected.data() + r * vocab, logits.data() + r * vocab,
                                            vocab, softcap, share);
    });
    if (share == 0) return;
    const ProductRows dlogits(n, vocab, logits.data(), in_bf16);
    if (dx.defined()) weight_product_backward(dlogits, read, dx.data() + begin * hidden);
    if (dw.defined()) weight_gradient(dlogits, x_rows, dw, begin == 0 ? Into::assign : Into::add);
  });
  return of_rows;
}

/// The loss of each row, 0 where its target is negative. With a share of each row, dx and dw, where
/// defined, become the gradients of the sum of shares times losses.
std::vector<double> cross_entropies(const Tensor& x, const Weight& weight,
                                    std::span<const std::int32_t> targets, Real softcap,
                                    std::span<const Real> shares = {}, Tensor dx = {},
                                    Tensor dw = {}) {
  check(softcap >= 0, "linear_cross_entropy: softcap {} is invalid", softcap);
  check(weight.shape().rank() == 2 && x.cols() == weight.dim(1),
        "linear_cross_entropy: x {} does not fit weight {} ([vocab, hidden])", x.shape(),
        weight.shape());
  check(static_cast<Index>(targets.size()) == x.rows(),
        "linear_cross_entropy: {} targets for {} rows", targets.size(), x.rows());
  for (std::size_t t = 0; t < targets.size(); ++t)
    check(targets[t] < weight.dim(0), "linear_cross_entropy: target {} at row {} is not below {}",
          targets[t], t, weight.dim(0));
  const Index rows = x.rows(), hidden = x.cols(), vocab = weight.dim(0);
  const ProductWeight read(weight);
  const bool in_bf16 = weight.multiplies_in_bf16();
  Tensor logits({std::min(rows, kChunkRows), vocab});
  std::vector<double> losses(targets.size());
  for_each_chunk(rows, [&](Index begin, Index n) {
    const ProductRows x_rows(n, hidden, x.data() + begin * hidden, in_bf16);
    weight_product(x_rows, read, logits.data());
    parallel_chunks(n, 4, [&](Index first, Index last) {
      for (Index r = first; r < last; ++r) {
        Real* row = logits.data() + r * vocab;
        const auto t = static_cast<std::size_t>(begin + r);
        const Real share = shares.empty() ? Real(0) : shares[t];
        if (targets[t] >= 0) losses[t] = row_loss(row, vocab, targets[t], softcap, share);
        if (!shares.empty() && (targets[t] < 0 || share == 0)) std::fill_n(row, vocab, Real(0));
      }
    });
    if (shares.empty()) return;
    const ProductRows dlogits(n, vocab, logits.data(), in_bf16);
    if (dx.defined()) weight_product_backward(dlogits, read, dx.data() + begin * hidden);
    if (dw.defined()) weight_gradient(dlogits, x_rows, dw, begin == 0 ? Into::assign : Into::add);
  });
  return losses;
}

/// A mean of `count` numbers as an op whose gradients are known up to the factor that backward
/// brings: `gradients` of `inputs`, in their order.
Variable mean_op(const char* op, const std::vector<double>& numbers, double count,
                 std::initializer_list<Variable> inputs, std::vector<Tensor> gradients) {
  double sum = 0;
  for (const double number : numbers) sum += number;
  return Variable::from_op(
      op, Tensor::full({1}, static_cast<Real>(sum / count)), inputs,
      [gradients = std::move(gradients)](const Tensor& dy, Grads grads) {
        for (std::size_t i = 0; i < gradients.size(); ++i)
          if (grads[i].wanted())
            grads[i].add(dy[0] == 1 ? gradients[i] : scale(Variable(gradients[i]), dy[0]).value());
      });
}

/// Losses of rows; gradients of x and the weight, where wanted, of the sum of shares times losses.
struct RowLosses {
  std::vector<double> losses;
  std::vector<Tensor> gradients;
};
RowLosses shared_losses(const Variable& x, const Weight& weight,
                        std::span<const std::int32_t> targets, std::span<const Real> shares,
                        Real softcap) {
  const bool want_x = grad_enabled() && x.requires_grad();
  const bool want_weight = grad_enabled() && weight.requires_grad();
  const Tensor dx = want_x ? Tensor(x.shape()) : Tensor();
  const Tensor dw = want_weight ? Tensor(weight.shape()) : Tensor();
  const auto wanted = want_x || want_weight ? shares : std::span<const Real>();
  return {cross_entropies(x.value(), weight, targets, softcap, wanted, dx, dw), {dx, dw}};
}

}  // namespace

std::vector<double> linear_kl_divergence_rows(const Tensor& x, const Tensor& reference,
                                              const Weight& weight, Real softcap) {
  return divergences(x, reference, weight, weight, softcap);
}

Variable linear_kl_divergence(const Variable& x, const Tensor& reference, const Weight& weight,
                              Real softcap, const Weight* reference_weight) {
  check(reference_weight != nullptr || !weight.requires_grad(),
        "linear_kl_divergence: the weight also computes the reference and must be a constant");
  const auto rows = static_cast<double>(x.value().rows());
  const bool want_x = grad_enabled() && x.requires_grad();
  const bool want_weight = grad_enabled() && weight.requires_grad();
  const Real share = want_x || want_weight ? 1 / static_cast<Real>(x.value().rows()) : Real(0);
  const Tensor dx = want_x ? Tensor(x.shape()) : Tensor();
  const Tensor dw = want_weight ? Tensor(weight.shape()) : Tensor();
  return mean_op(
      "linear_kl_divergence",
      divergences(x.value(), reference, weight,
                  reference_weight != nullptr ? *reference_weight : weight, softcap, share, dx, dw),
      rows, {x, weight.input()}, {dx, dw});
}

std::vector<double> linear_cross_entropy_rows(const Tensor& x, const Weight& weight,
                                              std::span<const std::int32_t> targets, Real softcap) {
  return cross_entropies(x, weight, targets, softcap);
}

Variable linear_cross_entropy(const Variable& x, const Weight& weight,
                              std::span<const std::int32_t> targets, Real softcap) {
  const auto scored = std::ranges::count_if(targets, [](auto t) { return t >= 0; });
  check(scored > 0 || targets.empty(), "linear_cross_entropy: no row has a target");
  const std::vector<Real> shares(targets.size(), 1 / static_cast<Real>(scored));
  const RowLosses of = shared_losses(x, weight, targets, shares, softcap);
  return mean_op("linear_cross_entropy", of.losses, static_cast<double>(scored),
                 {x, weight.input()}, of.gradients);
}

Variable weighted_cross_entropy(const Variable& x, const Weight& weight,
                                std::span<const std::int32_t> targets,
                                std::span<const Real> weights, Real softcap) {
  check(weights.size() == targets.size(), "weighted_cross_entropy: {} weights for {} targets",
        weights.size(), targets.size());
  RowLosses of = shared_losses(x, weight, targets, weights, softcap);
  for (std::size_t t = 0; t < weights.size(); ++t) of.losses[t] *= static_cast<double>(weights[t]);
  return mean_op("weighted_cross_entropy", of.losses, 1, {x, weight.input()}, of.gradients);
}

}  // namespace focus
