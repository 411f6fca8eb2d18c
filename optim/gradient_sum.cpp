#include "optim/gradient_sum.h"

#include <algorithm>
#include <utility>

#include "autograd/base/check.h"
#include "autograd/simd/kernels.h"

namespace focus {
namespace {

/// Numbers of all parts together that are exchanged at a time, and then in memory twice.
constexpr Index kBlock = Index{1} << 24;

void add_to(Tensor& sum, const Tensor& x) {
  if (!sum.unique()) sum = sum.clone();  // another parameter may have been given the same gradient
  simd::kernels().scale_row(x.data(), 1, x.size(), sum.data(), true);
}

/// Copies [begin, end) of all tensors in a row; undefined ones are zeros of their parameter's size.
void copy_flat(const std::vector<Tensor>& tensors, const NamedParameters& parameters, Index begin,
               Index end, Real* to) {
  Index first = 0;
  for (std::size_t i = 0; i < tensors.size() && first < end; ++i) {
    const Index size = parameters[i].variable.value().size();
    const Index from = std::max(begin, first), until = std::min(end, first + size);
    if (from < until) {
      if (tensors[i].defined())
        std::copy_n(tensors[i].data() + (from - first), until - from, to + (from - begin));
      else
        std::fill_n(to + (from - begin), until - from, Real(0));
    }
    first += size;
  }
}

void copy_back(const Real* from, Index begin, Index end, std::vector<Tensor>& tensors) {
  Index first = 0;
  for (Tensor& tensor : tensors) {
    const Index at = std::max(begin, first), until = std::min(end, first + tensor.size());
    if (at < until) std::copy_n(from + (at - begin), until - at, tensor.data() + (at - first));
    first += tensor.size();
  }
}

}  // namespace

GradientSum::GradientSum(const NamedParameters& parameters, int parts, Ranks& ranks)
    : parameters_(parameters), parts_(parts), ranks_(ranks) {
  if (ranks.count() == 1) sums_.resize(parameters.size());
}

void GradientSum::add() {
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
    if (sums_[i].defined())
      add_to(sums_[i], grads[i]);
    else
      sums_[i] = std::move(grads[i]);
  }
}

void GradientSum::finish() {
  if (ranks_.count() > 1) sums_ = exchanged_sums();
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    Variable variable = parameters_[i].variable;
    if (sums_[i].defined()) variable.set_grad(std::move(sums_[i]));
  }
}

// A process adds up a slice of the numbers for all parts, and all get all slices: what it sends and
// receives grows with the parts of one process, not with those of all.
std::vector<Tensor> GradientSum::exchanged_sums() const {
  std::vector<double> has(parameters_.size(), 0);
  for (const std::vector<Tensor>& part : owned_)
    for (std::size_t i = 0; i < part.size(); ++i) has[i] += part[i].defined() ? 1 : 0;
  std::vector<double> anyone(parameters_.size(), 0);
  for (const std::string& bytes : ranks_.gather(bytes_of(has))) {
    const std::vector<double> of_rank = numbers_of(bytes);
    check(of_rank.size() == anyone.size(), "ranks: {} parameters in this process, {} in another",
          anyone.size(), of_rank.size());
    for (std::size_t i = 0; i < anyone.size(); ++i) anyone[i] += of_rank[i];
  }
  Index total = 0;
  std::vector<Tensor> sums;
  for (const NamedParameter& p : parameters_) {
    sums.emplace_back(p.variable.shape());
    total += p.variable.value().size();
  }
  const Index count = ranks_.count(), me = ranks_.rank();
  const Index block = std::max<Index>(count, kBlock / parts_);
  for (Index begin = 0; begin < total; begin += block) {
    const Index end = std::min(total, begin + block);
    const auto slice = [&](Index q) { return begin + (end - begin) * q / count; };
    std::vector<std::vector<Real>> to(static_cast<std::size_t>(count));
    for (Index q = 0; q < count; ++q) {
      const Index size = slice(q + 1) - slice(q);
      auto& mine = to[static_cast<std::size_t>(q)];
      mine.resize(owned_.size() * static_cast<std::size_t>(size));
      for (std::size_t part = 0; part < owned_.size(); ++part)
        copy_flat(owned_[part], parameters_, slice(q), slice(q + 1),
                  mine.data() + static_cast<Index>(part) * size);
    }
    const std::vector<std::vector<Real>> of_rank = ranks_.exchange(std::move(to));
    const Index size = slice(me + 1) - slice(me);
    std::string sum(static_cast<std::size_t>(size) * sizeof(Real), '\0');
    auto* const numbers = reinterpret_cast<Real*>(sum.data());
    for (int part = 0; part < parts_; ++part) {
      const Real* from =
          of_rank[static_cast<std::size_t>(ranks_.rank_of(part))].data() + part / count * size;
      simd::kernels().scale_row(from, 1, size, numbers, part > 0);
    }
    const std::vector<std::string> slices = ranks_.gather(sum);
    for (Index q = 0; q < count; ++q)
      copy_back(reinterpret_cast<const Real*>(slices[static_cast<std::size_t>(q)].data()), slice(q),
                slice(q + 1), sums);
  }
  for (std::size_t i = 0; i < sums.size(); ++i)
    if (anyone[i] == 0) sums[i] = Tensor();
  return sums;
}

}  // namespace focus
