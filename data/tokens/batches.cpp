#include "data/tokens/batches.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <set>
#include <utility>

#include "autograd/base/check.h"
#include "autograd/base/random.h"
#include "data/files/notice.h"

namespace focus {
namespace {

void check_ids(const TokenView& tokens, std::int32_t vocab_size) {
  if (vocab_size == 0 || tokens.vocab_size() <= vocab_size) return;
  std::vector<std::int32_t> chunk;
  for (Index begin = 0; begin < tokens.size(); begin += static_cast<Index>(chunk.size())) {
    chunk.resize(std::min<Index>(1 << 16, tokens.size() - begin));
    tokens.copy(begin, chunk);
    const auto wrong =
        std::find_if(chunk.begin(), chunk.end(), [&](std::int32_t id) { return id >= vocab_size; });
    check(wrong == chunk.end(),
          "batches: token {} is {}, outside the model's vocabulary of {}: use the model's own "
          "tokenizer",
          begin + (wrong - chunk.begin()), wrong == chunk.end() ? 0 : *wrong, vocab_size);
  }
}

/// Whether the loss is of any token but the first.
bool is_any_learned(std::span<const std::uint8_t> counts) {
  return std::ranges::find(counts.subspan(1), 1) != counts.end();
}

/// Which of these pieces go into a window together, window by window: the longest first, each where
/// it leaves the least. Windows and pieces in the order of the text.
std::vector<std::vector<std::size_t>> best_fit(const std::vector<TokenRange>& pieces,
                                               Index capacity, Index lead) {
  std::vector<std::size_t> longest_first(pieces.size());
  std::iota(longest_first.begin(), longest_first.end(), std::size_t{0});
  std::ranges::stable_sort(longest_first, std::greater(),
                           [&](std::size_t i) { return pieces[i].size(); });
  std::vector<std::vector<std::size_t>> windows;
  std::set<std::pair<Index, std::size_t>> room;  // what is left, and of which window
  for (const std::size_t i : longest_first) {
    const Index wanted = pieces[i].size() + lead;
    auto best = room.lower_bound({wanted, 0});
    if (best == room.end()) {
      best = room.emplace(capacity, windows.size()).first;
      windows.emplace_back();
    }
    const auto [left, window] = *best;
    windows[window].push_back(i);
    room.erase(best);
    room.emplace(left - wanted, window);
  }
  for (auto& window : windows) std::ranges::sort(window);
  std::ranges::sort(windows, std::less(), [](const auto& window) { return window.front(); });
  return windows;
}

}  // namespace

std::vector<std::int32_t> Batch::targets() const {
  std::vector<std::int32_t> targets(ids.size(), -1);
  std::size_t document = 0;
  for (std::size_t t = 0; t + 1 < ids.size(); ++t) {
    const auto next = static_cast<Index>(t) + 1;
    if (documents.empty() && next % context == 0) continue;
    if (!documents.empty() && next == documents[document + 1]) {
      ++document;
      continue;
    }
    if (counts.empty() || counts[t + 1] != 0) targets[t] = ids[t + 1];
  }
  return targets;
}

Batches::Batches(TokenView tokens, const BatchOptions& options)
    : tokens_(std::move(tokens)), options_(options) {
  check(options.batch >= 1, "batches: batch size {} is invalid", options.batch);
  check(options.context >= 2, "batches: the context is {} tokens, but a loss needs two",
        options.context);
  if (options_.packing == Packing::automatic)
    options_.packing = tokens_.has_counts() ? Packing::documents : Packing::wrapped;
  check(
      by_document() || !tokens_.has_counts(),
      "batches: data.packing wrapped lets tokens see other examples; prompts with completions and "
      "messages need documents or none");
  if (by_document())
    pack();
  else
    num_windows_ = tokens_.size() / tokens_of_window();
  check(num_windows_ >= 1,
        "batches: {} tokens in {} documents do not fill one context of {}: give more text or a "
        "shorter context; for examples, a longer context",
        tokens_.size(), tokens_.num_documents(), options.context);
  check_ids(tokens_, options.vocab_size);
  order_epoch();
}

std::vector<TokenRange> Batches::pieces_of_documents() const {
  const Index most = tokens_of_window();
  std::vector<TokenRange> pieces;
  std::vector<std::uint8_t> counts;
  Index cut = 0, left_out = 0;
  for (Index i = 0; i < tokens_.num_documents(); ++i) {
    const TokenRange document = tokens_.document(i);
    counts.assign(document.size(), 1);
    if (tokens_.has_counts()) tokens_.copy_counts(document.begin, counts);
    if (std::ranges::all_of(counts, [](std::uint8_t one) { return one != 0; })) {
      for (Index begin = document.begin; begin + 2 <= document.end; begin += most)
        if (const TokenRange piece{begin, std::min(begin + most, document.end)}; piece.size() >= 2)
          pieces.push_back(piece);
      continue;
    }
    const TokenRange piece{document.begin, document.begin + std::min(most, document.size())};
    if (piece.size() < document.size()) ++cut;
    if (is_any_learned(std::span(counts).first(piece.size())))
      pieces.push_back(piece);
    else
      ++left_out;
  }
  if (cut > 0)
    notice(
        "{} of {} examples are longer than the context of {} tokens and are cut at its end; {} of "
        "them are left out, since no token of the loss remains",
        cut, tokens_.num_documents(), options_.context, left_out);
  return pieces;
}

std::vector<TokenRange> Batches::pieces_of_pairs() const {
  std::vector<TokenRange> pieces;
  Index cut = 0, left_out = 0;
  for (Index i = 0; i + 1 < tokens_.num_documents(); i += 2) {
    std::array<TokenRange, 2> pair = {tokens_.document(i), tokens_.document(i + 1)};
    bool whole = true, learned = true;
    for (TokenRange& piece : pair) {
      whole = whole && piece.size() <= tokens_of_window();
      piece.end = std::min(piece.end, piece.begin + tokens_of_window());
      std::vector<std::uint8_t> counts(piece.size());
      tokens_.copy_counts(piece.begin, counts);
      learned = learned && is_any_learned(counts);
    }
    cut += whole ? 0 : 1;
    left_out += learned ? 0 : 1;
    if (learned) pieces.insert(pieces.end(), pair.begin(), pair.end());
  }
  if (cut > 0)
    notice(
        "{} of {} pairs have an answer that ends beyond the context of {} tokens and is cut there; "
        "{} of them are left out, since no token of an answer remains",
        cut, tokens_.num_documents() / 2, options_.context, left_out);
  return pieces;
}

void Batches::pack() {
  const std::vector<TokenRange> pieces = options_.pairs ? pieces_of_pairs() : pieces_of_documents();
  first_piece_ = {0};
  const auto close = [&] { first_piece_.push_back(pieces_.size()); };
  if (options_.packing == Packing::none || options_.pairs) {
    for (const TokenRange& piece : pieces) {
      pieces_.push_back(piece);
      if (!options_.pairs || pieces_.size() % 2 == 0) close();
    }
  } else {
    const Index lead = options_.context - tokens_of_window();
    for (const auto& window : best_fit(pieces, options_.context, lead)) {
      for (const std::size_t i : window) pieces_.push_back(pieces[i]);
      close();
    }
  }
  num_windows_ = static_cast<Index>(first_piece_.size()) - 1;
}

Index Batches::num_tokens() const {
  if (!by_document()) return num_windows_ * options_.context;
  Index tokens = 0;
  for (const TokenRange& piece : pieces_)
    tokens += piece.size() + options_.context - tokens_of_window();
  return tokens;
}

Batch Batches::next() {
  Batch batch;
  for (Index i = 0; i < options_.batch; ++i) {
    if (position_ == num_windows_) {
      ++epoch_;
      position_ = 0;
      order_epoch();
    }
    append_window(order_.empty() ? position_ : order_[position_], batch);
    ++position_;
  }
  return batch;
}

Batch Batches::windows(Index first, Index count) const {
  check(first >= 0 && count >= 1 && first + count <= num_windows_,
        "batches: windows {} to {} are out of range of {}", first, first + count, num_windows_);
  Batch batch;
  for (Index i = 0; i < count; ++i) append_window(first + i, batch);
  return batch;
}

BatchState Batches::state() const { return {options_.seed, epoch_, position_, num_windows_}; }

void Batches::restore(const BatchState& state) {
  check(state.windows == num_windows_,
        "batches: the saved position is from data with {} windows, but this data has {}: resume "
        "with the same text, tokenizer and context",
        state.windows, num_windows_);
  check(state.epoch >= 0 && state.position >= 0 && state.position <= num_windows_,
        "batches: the saved position, window {} of {} in epoch {}, is invalid", state.position,
        num_windows_, state.epoch);
  options_.seed = state.seed;
  epoch_ = state.epoch;
  position_ = state.position;
  order_epoch();
}

void Batches::order_epoch() {
  if (!options_.shuffle) return;
  order_.resize(num_windows_);
  std::iota(order_.begin(), order_.end(), Index{0});
  // The seed goes through the generator once, so that (seed, epoch) pairs do not meet.
  Rng rng(Rng(options_.seed).next() + static_cast<std::uint64_t>(epoch_));
  for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[rng.below(i)]);
}

void Batches::append_document(const TokenRange& piece, Batch& batch) const {
  if (batch.documents.empty()) batch.documents = {0};
  if (options_.window_start) batch.ids.push_back(*options_.window_start);
  const std::size_t done = batch.ids.size(), count = static_cast<std::size_t>(piece.size());
  batch.ids.resize(done + count);
  tokens_.copy(piece.begin, std::span(batch.ids).last(count));
  if (tokens_.has_counts()) {
    batch.counts.resize(done + count);  // of what is put before it: 0
    tokens_.copy_counts(piece.begin, std::span(batch.counts).last(count));
  }
  batch.documents.push_back(static_cast<Index>(batch.ids.size()));
}

void Batches::append_window(Index window, Batch& batch) const {
  if (by_document()) {
    const auto at = static_cast<std::size_t>(window);
    for (std::size_t i = first_piece_[at]; i < first_piece_[at + 1]; ++i)
      append_document(pieces_[i], batch);
    batch.batch = 1;
    batch.context = static_cast<Index>(batch.ids.size());
    return;
  }
  const std::size_t done = batch.ids.size();
  const auto tokens = static_cast<std::size_t>(tokens_of_window());
  batch.ids.resize(done + options_.context);
  if (options_.window_start) batch.ids[done] = *options_.window_start;
  tokens_.copy(window * tokens_of_window(), std::span(batch.ids).last(tokens));
  batch.context = options_.context;
  ++batch.batch;
}

}  // namespace focus
