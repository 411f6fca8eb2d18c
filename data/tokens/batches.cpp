#include "data/tokens/batches.h"

#include <algorithm>
#include <numeric>

#include "autograd/base/check.h"
#include "autograd/base/random.h"

namespace focus {
namespace {

void check_ids(const TokenView& tokens, std::int32_t vocab_size) {
  if (vocab_size == 0 || tokens.vocab_size() <= vocab_size) return;
  std::vector<std::int32_t> chunk;
  for (Index begin = 0; begin < tokens.size(); begin += static_cast<Index>(chunk.size())) {
    chunk.resize(static_cast<std::size_t>(std::min<Index>(1 << 16, tokens.size() - begin)));
    tokens.copy(begin, chunk);
    const auto wrong =
        std::find_if(chunk.begin(), chunk.end(), [&](std::int32_t id) { return id >= vocab_size; });
    check(wrong == chunk.end(),
          "batches: token {} is {}, outside the model's vocabulary of {}: use the model's own "
          "tokenizer",
          begin + (wrong - chunk.begin()), wrong == chunk.end() ? 0 : *wrong, vocab_size);
  }
}

}  // namespace

Batches::Batches(TokenView tokens, const BatchOptions& options)
    : tokens_(std::move(tokens)), options_(options) {
  check(options.batch >= 1, "batches: a batch of {} windows", options.batch);
  check(options.context >= 2, "batches: a context of {} tokens, but a loss needs two",
        options.context);
  num_windows_ = tokens_.size() / tokens_of_window();
  check(num_windows_ >= 1,
        "batches: {} tokens in {} documents do not fill one context of {}: give more text or a "
        "shorter context",
        tokens_.size(), tokens_.num_documents(), options.context);
  check_ids(tokens_, options.vocab_size);
  order_epoch();
}

Batch Batches::next() {
  Batch batch;
  while (batch.batch < options_.batch) {
    if (position_ == num_windows_) {
      ++epoch_;
      position_ = 0;
      order_epoch();
    }
    append_window(order_.empty() ? position_ : order_[static_cast<std::size_t>(position_)], batch);
    ++position_;
  }
  return batch;
}

Batch Batches::windows(Index first, Index count) const {
  check(first >= 0 && count >= 1 && first + count <= num_windows_,
        "batches: windows {} to {} of {}", first, first + count, num_windows_);
  Batch batch;
  for (Index i = 0; i < count; ++i) append_window(first + i, batch);
  return batch;
}

BatchState Batches::state() const { return {options_.seed, epoch_, position_, num_windows_}; }

void Batches::restore(const BatchState& state) {
  check(state.windows == num_windows_,
        "batches: the saved position is of data with {} windows, this has {}: resume with the same "
        "text, tokenizer and context",
        state.windows, num_windows_);
  check(state.epoch >= 0 && state.position >= 0 && state.position <= num_windows_,
        "batches: the saved position, window {} of {} in epoch {}, is impossible", state.position,
        num_windows_, state.epoch);
  options_.seed = state.seed;
  epoch_ = state.epoch;
  position_ = state.position;
  order_epoch();
}

void Batches::order_epoch() {
  if (!options_.shuffle) return;
  order_.resize(static_cast<std::size_t>(num_windows_));
  std::iota(order_.begin(), order_.end(), Index{0});
  // The seed goes through the generator once, so that (seed, epoch) pairs do not meet.
  Rng rng(Rng(options_.seed).next() + static_cast<std::uint64_t>(epoch_));
  for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[rng.below(i)]);
}

void Batches::append_window(Index window, Batch& batch) const {
  const std::size_t done = batch.ids.size();
  const auto tokens = static_cast<std::size_t>(tokens_of_window());
  batch.ids.resize(done + static_cast<std::size_t>(options_.context));
  if (options_.window_start) batch.ids[done] = *options_.window_start;
  tokens_.copy(window * tokens_of_window(), std::span(batch.ids).last(tokens));
  batch.context = options_.context;
  ++batch.batch;
}

}  // namespace focus
