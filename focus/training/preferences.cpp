#include "focus/training/preferences.h"

#include <cmath>

#include "autograd/base/check.h"

namespace focus {
namespace {

/// log p of the answer of each document.
std::vector<double> log_probabilities(const std::vector<double>& losses, const Batch& batch) {
  std::vector<double> sums(batch.documents.size() - 1);
  for (std::size_t d = 0; d < sums.size(); ++d)
    for (Index t = batch.documents[d]; t < batch.documents[d + 1]; ++t) sums[d] -= losses[t];
  return sums;
}

}  // namespace

Variable preference_loss(const Decoder& decoder, const Variable& hidden, const Tensor& reference,
                         const Decoder* teacher, const Batch& batch, double beta,
                         PreferenceFigures& figures) {
  check(batch.documents.size() % 2 == 1 && batch.documents.size() > 1,
        "preferences: {} documents are not pairs", std::ssize(batch.documents) - 1);
  const std::vector<std::int32_t> targets = batch.targets();
  const auto own = log_probabilities(decoder.cross_entropy_rows(hidden.value(), targets), batch);
  const Decoder& other = teacher != nullptr ? *teacher : decoder;
  const auto before = log_probabilities(other.cross_entropy_rows(reference, targets), batch);
  const std::size_t pairs = own.size() / 2;
  const double share = 1 / static_cast<double>(pairs);
  figures = {};
  // The gradient of the loss is that of the rows' losses with these weights.
  std::vector<Real> weights(targets.size(), 0);
  for (std::size_t i = 0; i < pairs; ++i) {
    const std::size_t chosen = 2 * i, rejected = chosen + 1;
    const double margin =
        beta * ((own[chosen] - own[rejected]) - (before[chosen] - before[rejected]));
    // -log sigmoid(x) = log(1 + e^-x), without overflow.
    figures.loss += share * (std::max(0.0, -margin) + std::log1p(std::exp(-std::abs(margin))));
    figures.accuracy += margin > 0 ? share : 0;
    figures.margin += share * margin;
    const double weight = share * beta / (1 + std::exp(margin));
    for (const std::size_t d : {chosen, rejected})
      std::fill(weights.begin() + batch.documents[d], weights.begin() + batch.documents[d + 1],
                static_cast<Real>(d == chosen ? weight : -weight));
  }
  const Variable along = decoder.cross_entropy(hidden, targets, weights);
  return add(along, Tensor::full({1}, static_cast<Real>(figures.loss) - along.value()[0]));
}

}  // namespace focus
