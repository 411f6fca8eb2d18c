#include "focus/generation/scheduler.h"

#include <algorithm>

#include "autograd/base/check.h"
#include "autograd/base/profile.h"
#include "layers/family.h"
#include "layers/logit_rows.h"

namespace focus {
namespace {

constexpr Index kLogprobRows = 32;  // of a prompt whose logits are in memory at once

double rate(Index tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

}  // namespace

Scheduler::Scheduler(const GenerationModel& model, const Limits& limits)
    : model_(model), limits_(limits), decoder_(model.decoder, model.focus) {
  check(limits.slots > 0 && limits.waiting >= 0 && limits.piece > 0,
        "scheduler: {} slots, {} waiting and pieces of {} tokens are not valid", limits.slots,
        limits.waiting, limits.piece);
  if (model.focus != nullptr) model.focus->mode = model.mode;
  check(!model.drafting || (model.cache && model.mode.kind == AttentionKind::dense),
        "scheduler: drafts are for dense attention with a cache");
  for (Index i = 0; i < limits.slots; ++i) {
    slots_.push_back({decoder_.cache(model.mode, model.cache, limits.undo)});
    if (model.drafting)
      slots_.back().speculation =
          std::make_unique<Speculation>(decoder_, *model.drafting, *model.cache, limits.undo);
  }
}

void Scheduler::Slot::truncate(Index tokens) {
  cache.truncate(tokens);
  if (also() != nullptr) also()->truncate(tokens);
}

Index Scheduler::Slot::least_size() const {
  return std::max(cache.least_size(), also() != nullptr ? also()->least_size() : 0);
}

std::size_t Scheduler::Slot::bytes() const {
  return cache.bytes() + (also() != nullptr ? also()->bytes() : 0);
}

void Scheduler::Slot::clear() {
  cache.clear();
  if (also() != nullptr) also()->clear();
}

std::optional<Scheduler::Ticket> Scheduler::submit(std::vector<std::int32_t> prompt,
                                                   GenerationOptions options, OnToken on_token) {
  options.sampling.validate();
  const Index positions = model_.decoder.config().max_position_embeddings;
  check(!prompt.empty() && std::ssize(prompt) <= positions,
        "scheduler: a prompt of {} tokens for {} positions", prompt.size(), positions);
  Ticket ticket;
  auto job = std::make_unique<Job>(
      Job{Continuation(model_.tokenizer, model_.ends, positions, std::move(prompt),
                       std::move(options), std::move(on_token)),
          {},
          ticket.cancelled});
  ticket.result = job->result.get_future();
  const std::lock_guard lock(mutex_);
  if (stopped_ || counts_.active + std::ssize(waiting_) >= limits_.slots + limits_.waiting) {
    ++counts_.refused;
    return std::nullopt;
  }
  ++counts_.requests;
  waiting_.push_back(std::move(job));
  wake_.notify_one();
  return ticket;
}

/// How many tokens of a cache that holds these a prompt begins with; 0 where they cannot be kept,
/// `least` being the fewest that can, or are too few to give the cache away. The prompt's last
/// token is always computed: the first new token is drawn from its logits.
Index Scheduler::reusable(const std::vector<std::int32_t>& held, Index least,
                          const std::vector<std::int32_t>& prompt) const {
  const auto most = std::min(held.size(), prompt.size() - 1);
  const Index common =
      std::ranges::mismatch(std::span(held).first(most), prompt).in1 - std::span(held).begin();
  // Keys of another length would have other angles.
  return model_.cache && common >= least &&
                 2 * common >= std::min(std::ssize(held), std::ssize(prompt)) &&
                 same_angles(model_.decoder.config(), std::ssize(held), std::ssize(prompt))
             ? common
             : 0;
}

/// Gives free slots to those who wait.
void Scheduler::admit() {
  for (;;) {
    std::unique_ptr<Job> job;
    {
      const std::lock_guard lock(mutex_);
      std::erase_if(waiting_, [](const std::unique_ptr<Job>& waits) {
        if (*waits->cancelled) end(*waits);
        return waits->cancelled->load();
      });
      if (waiting_.empty() || counts_.active == limits_.slots) return;
      job = std::move(waiting_.front());
      waiting_.pop_front();
      ++counts_.active;
    }
    place(std::move(job));
  }
}

/// Gives a text the free slot with most of its prompt, or else the one that has been free for
/// longest; this one too where a file has more.
void Scheduler::place(std::unique_ptr<Job> job) {
  const std::vector<std::int32_t>& prompt = job->text.ids();
  // Log-probabilities of a prompt need all of its rows.
  const bool reuses = !job->text.options().prompt_logprobs;
  Slot *best = nullptr, *oldest = nullptr;
  Index most = 0;
  for (Slot& slot : slots_) {
    if (slot.job != nullptr) continue;
    const Index kept = reuses ? reusable(slot.cache.ids(), slot.least_size(), prompt) : 0;
    if (best == nullptr || kept > most || (kept == most && slot.used < best->used)) {
      best = &slot;
      most = kept;
    }
    if (oldest == nullptr || slot.used < oldest->used) oldest = &slot;
  }
  Generated& made = job->text.made();
  best->job = std::move(job);
  try {
    const CacheFiles::Kept* file = nullptr;
    if (reuses && model_.files != nullptr)
      for (const CacheFiles::Kept& kept : model_.files->kept())
        if (const Index common = reusable(kept.ids, kept.least, prompt); common > most) {
          file = &kept;
          most = common;
        }
    if (file != nullptr) {
      if (best != oldest) oldest->job = std::move(best->job);
      best = oldest;
      best->clear();
      if (!model_.files->load(*file, decoder_, best->cache, best->also())) most = 0;
    }
    if (most == 0)
      best->clear();
    else if (most < best->cache.size())
      best->truncate(most);
  } catch (...) {
    return fail_with(*best, std::current_exception());
  }
  made.reused_tokens = most;
  const std::lock_guard lock(mutex_);
  counts_.prompt_tokens += made.prompt_tokens;
  counts_.reused_tokens += most;
}

/// Writes what a text became, and frees its slot, which keeps the cache.
void Scheduler::release(Slot& slot) {
  Generated& made = slot.job->text.made();
  made.computed_tokens = slot.cache.size();
  if (slot.cache.dtype()) {
    made.cache_bytes = slot.bytes();
    made.keys_read = slot.cache.share_read();
  }
  made.prefill_rate = rate(made.prompt_tokens - made.reused_tokens, slot.job->prompt_seconds);
  made.decode_rate = rate(made.passes + made.right_tokens, slot.job->seconds);
  slot.used = steps_;
  count_bytes();
  const std::unique_ptr<Job> job = std::move(slot.job);
  {
    const std::lock_guard lock(mutex_);
    --counts_.active;
    counts_.generated_tokens += std::ssize(made.ids);
  }
  job->result.set_value(std::move(made));
}

/// Ends a text that has no slot.
void Scheduler::end(Job& job) {
  job.text.finish("caller");
  job.result.set_value(std::move(job.text.made()));
}

void Scheduler::fail_with(Slot& slot, const std::exception_ptr& error) {
  const std::unique_ptr<Job> job = std::move(slot.job);
  slot.clear();
  {
    const std::lock_guard lock(mutex_);
    --counts_.active;
  }
  job->result.set_exception(error);
}

/// Log-probabilities of the prompt's tokens that follow the rows of hidden from `begin` on, the
/// last tokens that the slot's cache took.
void Scheduler::note_prompt(Slot& slot, const Tensor& hidden, Index begin, Index rows) const {
  Continuation& text = slot.job->text;
  const Index first = slot.cache.size() - rows;  // the position of the first row
  const Index wanted = std::min(rows, static_cast<Index>(text.prompt_size()) - 1 - first);
  const auto note = [&](Index done, Index count, const Tensor& logits) {
    for (Index i = 0; i < count; ++i)
      text.made().prompt_logprobs.push_back(log_probability(
          logits.span().subspan(i * logits.cols(), logits.cols()), text.ids()[first + done + i + 1],
          text.options().top_logprobs.value_or(0)));
  };
  for_logits(model_.decoder, hidden, begin, wanted, kLogprobRows, note);
}

/// Guesses of a text's next tokens, at most so many.
std::vector<std::int32_t> Scheduler::draft(Slot& slot, Index most) const {
  if (!slot.speculation || slot.job->text.made().ids.empty()) return {};
  const double start = now();
  std::vector<std::int32_t> drafts = slot.speculation->draft(slot.job->text, most);
  slot.job->seconds += now() - start;
  return drafts;
}

/// The next tokens of some slots, at most so many of each, as rows of one pass, behind the token of
/// one slot alone also drafts (rows of several slots share the weights already); then those whose
/// tokens are all computed draw.
void Scheduler::pass(const std::vector<Slot*>& slots, Index most) {
  std::vector<CachedDecoder::Part> parts;
  std::vector<std::vector<std::int32_t>> ids(slots.size());
  std::vector<Index> first_draws;  // of each slot, of the rows that draw
  Tensor logits;
  Index draws = 0;
  double start = now();
  try {
    for (std::size_t i = 0; i < slots.size(); ++i) {
      Slot& slot = *slots[i];
      const auto next = std::span(slot.job->text.ids()).subspan(slot.cache.size());
      ids[i].assign(next.begin(), next.begin() + std::min<Index>(std::ssize(next), most));
      if (most == 1 && slots.size() == 1) {
        const std::vector<std::int32_t> drafts = draft(slot, Speculation::kMostRows - 1);
        ids[i].insert(ids[i].end(), drafts.begin(), drafts.end());
      }
      parts.push_back({.cache = &slot.cache, .ids = ids[i], .also = slot.also()});
    }
    start = now();
    const Tensor hidden = decoder_.hidden_states(parts);
    std::vector<Real> rows;
    Index end = 0;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      Slot& slot = *slots[i];
      const Index count = std::ssize(parts[i].ids);
      end += count;
      if (slot.job->text.options().prompt_logprobs) note_prompt(slot, hidden, end - count, count);
      first_draws.push_back(draws);
      const Index drawing = slot.cache.size() - std::ssize(slot.job->text.ids()) + 1;
      if (drawing <= 0) continue;
      draws += drawing;
      const auto of_slot =
          hidden.span().subspan((end - drawing) * hidden.cols(), drawing * hidden.cols());
      rows.insert(rows.end(), of_slot.begin(), of_slot.end());
    }
    first_draws.push_back(draws);
    if (draws > 0)
      logits = model_.decoder.logits(Tensor::from({draws, hidden.cols()}, rows)).value();
  } catch (...) {
    for (Slot* slot : slots) fail_with(*slot, std::current_exception());
    return;
  }
  const double seconds = now() - start;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    Job& job = *slots[i]->job;
    const bool prompt = job.text.made().ids.empty();
    (prompt ? job.prompt_seconds : job.seconds) += seconds;
    job.text.made().passes += prompt ? 0 : 1;
    const Index rows = first_draws[i + 1] - first_draws[i];
    if (rows > 0)
      draw(*slots[i], logits.span().subspan(first_draws[i] * logits.cols(), rows * logits.cols()),
           std::span(ids[i]).last(rows - 1), slots.size() == 1 ? seconds : 0);
  }
}

/// Draws a token, and those behind it as long as a draft was right; what was wrong is taken back.
/// logits [drafts + 1, vocab_size], of a pass of this slot alone that took so many seconds, or 0
void Scheduler::draw(Slot& slot, std::span<Real> logits, std::span<const std::int32_t> drafts,
                     double seconds) {
  Job& job = *slot.job;
  Generated& made = job.text.made();
  const double start = now();
  const std::size_t vocab_size = logits.size() / (drafts.size() + 1);
  const bool prompt = made.ids.empty();
  if (prompt) slot.cache.count_anew();  // earlier texts' and the prompt's are not the answer's
  try {
    std::size_t right = 0;
    if (job.text.options().max_new_tokens == 0) {
      job.text.finish("max-new-tokens");
    } else {
      for (;; ++right) {
        job.text.draw(logits.subspan(right * vocab_size, vocab_size));
        if (job.text.ended() || right == drafts.size() || job.text.ids().back() != drafts[right])
          break;
      }
    }
    if (right < drafts.size()) slot.truncate(std::ssize(job.text.ids()) - 1);
    if (slot.speculation && !prompt && seconds > 0)
      slot.speculation->note(std::ssize(drafts), static_cast<Index>(right), seconds);
    made.drafted_tokens += std::ssize(drafts);
    made.right_tokens += static_cast<Index>(right);
    job.seconds += now() - start;
    if (prompt && model_.files != nullptr) model_.files->save(slot.cache, slot.also());
  } catch (...) {
    return fail_with(slot, std::current_exception());
  }
  if (job.text.ended()) release(slot);
}

bool Scheduler::step() {
  const NoGrad guard;
  ++steps_;
  admit();
  std::vector<Slot*> decoding;
  std::vector<std::size_t> prompting;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (slot.job == nullptr) continue;
    if (*slot.job->cancelled) {
      slot.job->text.finish("caller");
      release(slot);
    } else if (slot.job->text.made().ids.empty()) {
      prompting.push_back(i);
    } else {
      decoding.push_back(&slot);
    }
  }
  if (!decoding.empty()) pass(decoding, 1);
  if (!prompting.empty()) {
    const auto after = std::ranges::upper_bound(prompting, last_prompted_);
    last_prompted_ = after == prompting.end() ? prompting.front() : *after;
    const bool alone = decoding.empty() && prompting.size() == 1;
    pass({&slots_[last_prompted_]},
         alone ? model_.decoder.config().max_position_embeddings : limits_.piece);
    count_bytes();
  }
  const std::lock_guard lock(mutex_);
  return counts_.active > 0 || !waiting_.empty();
}

/// Goes through every group of every cache: too much for each token.
void Scheduler::count_bytes() {
  std::size_t bytes = 0;
  for (const Slot& slot : slots_) bytes += slot.bytes();
  const std::lock_guard lock(mutex_);
  counts_.cache_bytes = bytes;
}

void Scheduler::run() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stopped_ || counts_.active > 0 || !waiting_.empty(); });
      if (stopped_) break;
    }
    step();
  }
  end_all();
}

void Scheduler::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  wake_.notify_all();
}

void Scheduler::end_all() {
  for (Slot& slot : slots_) {
    if (slot.job == nullptr) continue;
    slot.job->text.finish("caller");
    release(slot);
  }
  std::deque<std::unique_ptr<Job>> left;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    left.swap(waiting_);
  }
  for (const auto& job : left) end(*job);
}

Scheduler::Counts Scheduler::counts() const {
  const std::lock_guard lock(mutex_);
  Counts counts = counts_;
  counts.waiting = std::ssize(waiting_);
  return counts;
}

}  // namespace focus
