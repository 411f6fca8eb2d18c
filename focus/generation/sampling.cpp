#include "focus/generation/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "autograd/base/check.h"
#include "autograd/base/parallel.h"

namespace focus {

void SamplingOptions::validate() const {
  check(temperature >= 0 && std::isfinite(temperature),
        "sampling: temperature must be 0 (greedy) or more, not {}", temperature);
  check(top_k >= 0, "sampling: top_k must be 0 (all) or more, not {}", top_k);
  check(repetition_penalty > 0 && std::isfinite(repetition_penalty),
        "sampling: repetition_penalty must be positive, not {}", repetition_penalty);
  check(top_p > 0 && top_p <= 1, "sampling: top_p must be in (0, 1], not {}", top_p);
  check(min_p >= 0 && min_p <= 1, "sampling: min_p must be from 0 to 1, not {}", min_p);
}

void penalise_repetitions(std::span<Real> logits, std::span<const std::int32_t> text,
                          double penalty) {
  if (penalty == 1) return;
  std::vector<bool> penalised(logits.size());
  for (const std::int32_t id : text) {
    const auto at = static_cast<std::size_t>(id);
    if (id < 0 || at >= logits.size() || penalised[at]) continue;
    penalised[at] = true;
    Real& logit = logits[at];
    logit = logit < 0 ? logit * static_cast<Real>(penalty) : logit / static_cast<Real>(penalty);
  }
}

void TokenRules::forbid(std::span<Real> logits, std::span<const std::int32_t> text,
                        std::size_t prompt, std::span<const std::int32_t> ends) const {
  const auto ban = [&](std::int32_t id) {
    if (id >= 0 && static_cast<std::size_t>(id) < logits.size())
      logits[static_cast<std::size_t>(id)] = -std::numeric_limits<Real>::infinity();
  };
  std::ranges::for_each(suppress_tokens, ban);
  if (text.size() == prompt) std::ranges::for_each(begin_suppress_tokens, ban);
  const auto ends_with = [&](std::span<const std::int32_t> run) {
    return run.size() <= text.size() && std::ranges::equal(run, text.last(run.size()));
  };
  for (const std::vector<std::int32_t>& word : bad_words_ids) {
    const bool is_end = word.size() == 1 && std::ranges::find(ends, word[0]) != ends.end();
    if (!is_end && ends_with(std::span(word).first(word.size() - 1))) ban(word.back());
  }
  const auto run = static_cast<std::size_t>(no_repeat_ngram_size);
  for (std::size_t i = 0; run > 0 && i + run <= text.size(); ++i)
    if (ends_with(text.subspan(i, run - 1))) ban(text[i + run - 1]);
}

namespace {

/// The ids in falling order of their logits, of equal ones the lower first. Few are asked for as a
/// rule, so they are sorted a band of logits at a time: from the highest down to `width` below it,
/// to twice that, and so on.
class FallingOrder {
 public:
  FallingOrder(std::span<const Real> logits, Real highest, double width)
      : logits_(logits), highest_(highest), width_(width) {}

  /// The id at place i, which is below the number of logits.
  std::int32_t at(std::size_t i) {
    while (i >= ids_.size()) add_band();
    return ids_[i];
  }

 private:
  void add_band() {
    constexpr int kBands = 4;  // and one of all that is left
    const auto lowest = ++bands_ > kBands ? -std::numeric_limits<Real>::infinity()
                                          : static_cast<Real>(highest_ - width_);
    const auto sorted = static_cast<std::ptrdiff_t>(ids_.size());
    for (std::size_t id = 0; id < logits_.size(); ++id)
      if (logits_[id] >= lowest && (bands_ == 1 || logits_[id] < lowest_))
        ids_.push_back(static_cast<std::int32_t>(id));
    std::ranges::sort(ids_.begin() + sorted, ids_.end(), [&](std::int32_t a, std::int32_t b) {
      const Real x = logits_[a], y = logits_[b];
      return x > y || (x == y && a < b);
    });
    lowest_ = lowest;
    width_ *= 2;
  }

  std::span<const Real> logits_;
  std::vector<std::int32_t> ids_;
  int bands_ = 0;
  Real highest_, lowest_ = 0;  // of the bands so far
  double width_;
};

/// e^((logit - highest) / temperature) of each, and their sum.
struct Weights {
  std::vector<double> of;
  double sum;
};
Weights weights_of(std::span<const Real> logits, Real highest, double temperature) {
  constexpr Index kChunk = 4096;
  const auto n = static_cast<Index>(logits.size());
  std::vector<double> weights(logits.size()), sums(static_cast<std::size_t>(n / kChunk + 1));
  parallel_chunks(n, kChunk, [&](Index begin, Index end) {
    double sum = 0;
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
      sum += weights[i] = std::exp((static_cast<double>(logits[i]) - highest) / temperature);
    sums[begin / kChunk] = sum;
  });
  return {std::move(weights), std::accumulate(sums.begin(), sums.end(), 0.0)};
}

}  // namespace

std::int32_t sample(std::span<const Real> logits, const SamplingOptions& options, Rng& rng) {
  options.validate();
  check(!logits.empty(), "sampling: no logits");
  const auto highest = std::ranges::max_element(logits);
  check(std::isfinite(*highest), "sampling: a logit is {}", *highest);
  if (options.temperature == 0) return static_cast<std::int32_t>(highest - logits.begin());

  const Weights weights = weights_of(logits, *highest, options.temperature);
  check(std::isfinite(weights.sum), "sampling: a logit is not a number");
  // Within this of the highest lies nearly all of the weight, unless the distribution is flat.
  FallingOrder order(logits, *highest, 8 * options.temperature);
  const auto weight = [&](std::size_t i) { return weights.of[order.at(i)]; };
  std::size_t kept = logits.size();
  double total = weights.sum;
  if (options.top_k > 0 && static_cast<std::size_t>(options.top_k) < kept) {
    kept = static_cast<std::size_t>(options.top_k);
    total = 0;
    for (std::size_t i = 0; i < kept; ++i) total += weight(i);
  }
  if (options.top_p < 1) {
    std::size_t fewest = 0;
    double reached = 0;
    while (fewest < kept && reached < options.top_p * total) reached += weight(fewest++);
    kept = fewest;
    total = reached;
  }
  if (options.min_p > 0) {
    std::size_t likely = 1;
    total = weight(0);
    while (likely < kept && weight(likely) >= options.min_p * weight(0)) total += weight(likely++);
    kept = likely;
  }
  double left = rng.uniform() * total;
  for (std::size_t i = 0; i + 1 < kept; ++i)
    if ((left -= weight(i)) < 0) return order.at(i);
  return order.at(kept - 1);
}

TokenLogprob log_probability(std::span<const Real> logits, std::int32_t id, Index top) {
  const auto highest = *std::ranges::max_element(logits);
  const double log_sum = highest + std::log(weights_of(logits, highest, 1).sum);
  FallingOrder order(logits, highest, 8);
  const auto of = [&](std::int32_t token) {
    return std::pair(token, static_cast<double>(logits[token]) - log_sum);
  };
  TokenLogprob found{.id = id, .logprob = of(id).second};
  for (Index i = 0; i < std::min(top, std::ssize(logits)); ++i)
    found.top.push_back(of(order.at(i)));
  return found;
}

}  // namespace focus
