#include "optim/training_step.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "autograd/base/check.h"
#include "autograd/base/profile.h"
#include "autograd/ops.h"
#include "autograd/simd/kernels.h"

namespace focus {
namespace {

/// The sum of a step's gradients over its parts, in the order of the parts: the bits do not depend
/// on the number of processes.
class GradientSum {
 public:
  /// `parameters` collect the gradients; they stay as they are until finish().
  GradientSum(const NamedParameters& parameters, int parts, Ranks& ranks)
      : parameters_(parameters), parts_(parts), ranks_(ranks), sums_(parameters.size()) {}

  /// Moves the gradients of the next part that this process owns out of the parameters.
  void add() {
    std::vector<Tensor> grads;
    for (const NamedParameter& p : parameters_) {
      Variable variable = p.variable;
      grads.push_back(variable.grad());
      variable.zero_grad();
    }
    if (ranks_.count() > 1) {
      owned_.push_back(std::move(grads));
      return;
    }
    for (std::size_t i = 0; i < grads.size(); ++i) {
      if (!grads[i].defined()) continue;
      if (!sums_[i].defined()) {
        sums_[i] = std::move(grads[i]);
        continue;
      }
      // Another parameter may have been given the same gradient.
      if (!sums_[i].unique()) sums_[i] = sums_[i].clone();
      simd::kernels().scale_row(grads[i].data(), 1, grads[i].size(), sums_[i].data(), true);
    }
  }

  /// Sets the sums as the parameters' gradients; those without one in any part have none.
  void finish() {
    if (ranks_.count() > 1) exchange();
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      Variable variable = parameters_[i].variable;
      if (sums_[i].defined()) variable.set_grad(std::move(sums_[i]));
    }
  }

 private:
  /// Calls f(parameter, its first, offset, count) for each parameter with numbers in [begin, end)
  /// of all parameters' numbers in a row; `offset` counts from begin.
  template <class F>
  void for_each_in(Index begin, Index end, F&& f) const {
    Index first = 0;
    for (std::size_t i = 0; i < parameters_.size() && first < end; ++i) {
      const Index size = parameters_[i].variable.value().size();
      const Index from = std::max(begin, first), until = std::min(end, first + size);
      if (from < until) f(i, from - first, from - begin, until - from);
      first += size;
    }
  }

  /// Each process adds up a slice of the numbers for all parts, and all get all slices: what one
  /// sends and receives grows with its parts, not with those of all.
  void exchange() {
    std::vector<double> has(parameters_.size(), 0), anyone = has;
    for (const std::vector<Tensor>& part : owned_)
      for (std::size_t i = 0; i < part.size(); ++i) has[i] += part[i].defined() ? 1 : 0;
    for (const std::string& bytes : ranks_.gather(bytes_of(has))) {
      const std::vector<double> of_rank = numbers_of(bytes);
      check(of_rank.size() == anyone.size(), "ranks: {} parameters in this process, {} in another",
            anyone.size(), of_rank.size());
      for (std::size_t i = 0; i < anyone.size(); ++i) anyone[i] += of_rank[i];
    }
    Index total = 0;
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      sums_[i] = Tensor(parameters_[i].variable.shape());
      total += sums_[i].size();
    }
    // Numbers of all parts together that are exchanged at a time, and then in memory twice.
    constexpr Index kBlock = Index{1} << 24;
    const Index block = std::max<Index>(ranks_.count(), kBlock / parts_);
    for (Index begin = 0; begin < total; begin += block)
      exchange_block(begin, std::min(total, begin + block));
    for (std::size_t i = 0; i < sums_.size(); ++i)
      if (anyone[i] == 0) sums_[i] = Tensor();
  }

  void exchange_block(Index begin, Index end) {
    const Index count = ranks_.count(), me = ranks_.rank();
    const auto slice = [&](Index q) { return begin + (end - begin) * q / count; };
    std::vector<std::vector<Real>> to(count);
    for (Index q = 0; q < count; ++q) {
      std::vector<Real>& mine = to[q];
      const Index size = slice(q + 1) - slice(q);
      mine.resize(owned_.size() * size);  // zeros
      Real* out = mine.data();
      for (const std::vector<Tensor>& part : owned_) {
        for_each_in(slice(q), slice(q + 1), [&](std::size_t i, Index at, Index offset, Index n) {
          if (part[i].defined()) std::copy_n(part[i].data() + at, n, out + offset);
        });
        out += size;
      }
    }
    const std::vector<std::vector<Real>> of_rank = ranks_.exchange(std::move(to));
    const Index size = slice(me + 1) - slice(me);
    std::string sum(static_cast<std::size_t>(size) * sizeof(Real), '\0');
    for (int part = 0; part < parts_; ++part) {
      const Real* from = of_rank[ranks_.rank_of(part)].data() + part / count * size;
      simd::kernels().scale_row(from, 1, size, reinterpret_cast<Real*>(sum.data()), part > 0);
    }
    const std::vector<std::string> slices = ranks_.gather(sum);
    for (Index q = 0; q < count; ++q) {
      const auto* from = reinterpret_cast<const Real*>(slices[q].data());
      for_each_in(slice(q), slice(q + 1), [&](std::size_t i, Index at, Index offset, Index n) {
        std::copy_n(from + offset, n, sums_[i].data() + at);
      });
    }
  }

  const NamedParameters& parameters_;
  const int parts_;
  Ranks& ranks_;
  std::vector<Tensor> sums_;                // by parameter
  std::vector<std::vector<Tensor>> owned_;  // of several processes, by own part and parameter
};

}  // namespace

StepResult training_step(AdamW& adamw, const TrainingPhase& phase, std::int64_t step,
                         int micro_batches, const std::function<Variable(int)>& loss,
                         Ranks& ranks) {
  StepResult result{.lr = learning_rate(phase.optim, step - phase.first, phase.steps)};
  adamw.zero_grad();
  GradientSum sum(adamw.parameters(), micro_batches, ranks);
  std::vector<std::vector<double>> losses;
  bool finite = true;
  for (int i = 0; i < micro_batches; ++i) {
    if (!ranks.owns(i)) continue;
    losses.push_back({0});
    if (!finite) continue;  // all processes learn it below and fail
    const Variable value = loss(i);
    losses.back()[0] = static_cast<double>(value.value()[0]);
    finite = std::isfinite(losses.back()[0]);
    if (!finite) continue;
    backward(micro_batches == 1 ? value : scale(value, Real(1) / static_cast<Real>(micro_batches)));
    if (micro_batches > 1) sum.add();
  }
  const double computed = now();
  const auto all_losses = gather_parts(ranks, micro_batches, losses);
  const double met = now();
  for (const std::vector<double>& of_part : all_losses) {
    if (!std::isfinite(of_part[0]))
      fail("step {}: the loss is {}; lower optim.lr, or check the data of this step", step,
           of_part[0]);
    result.loss += of_part[0] / micro_batches;
  }
  if (micro_batches > 1) sum.finish();
  if (ranks.count() > 1) {
    result.waited = met - computed;
    result.exchanged = now() - met;
  }
  result.grad_norm = gradient_norm(adamw.parameters());
  if (!std::isfinite(result.grad_norm))
    fail(
        "step {}: the gradient of {} is not finite; lower optim.lr, or check the data of this step",
        step, first_nonfinite_gradient(adamw.parameters()));
  adamw.step(result.lr, clip_factor(result.grad_norm, phase.optim.clip_norm));
  profile_mark("optimiser");
  return result;
}

}  // namespace focus
