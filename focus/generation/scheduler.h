#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <future>
#include <memory>
#include <mutex>

#include "focus/generation/cache_files.h"
#include "focus/generation/continuation.h"
#include "focus/generation/sequence_cache.h"
#include "focus/generation/speculation.h"

namespace focus {

/// What continues texts, and how it attends. All of it must outlive who uses it.
struct GenerationModel {
  Decoder& decoder;
  FocusModel* focus;  // may be null
  const Tokenizer& tokenizer;
  std::vector<std::int32_t> ends;  // ids that end a text
  AttentionSpec mode = {};         // as CachedDecoder::cache() takes it
  std::optional<CacheDtype> cache = CacheDtype::float32;
  std::optional<Drafting> drafting = {};  // only with a cache of dense attention
  CacheFiles* files = nullptr;            // of prompts; null: none. Only with a cache
};

/// Continues several texts at once: each has a slot with a cache, the next tokens of all are
/// rows of one pass, and prompts are computed between these passes, piece by piece in turn. A slot
/// keeps its cache when its text has ended: a prompt that begins alike continues from there.
///
/// Any thread may submit; one thread at a time runs step().
class Scheduler {
 public:
  struct Limits {
    Index slots = 1;
    Index waiting = 1;  // texts beyond those in slots
    Index piece = 256;  // tokens of a prompt between two tokens of the others
    Index undo = 0;     // of CachedDecoder::cache(), for prompts that part from an earlier text
  };
  Scheduler(const GenerationModel& model, const Limits& limits);
  /// Texts that have not ended end as "caller".
  ~Scheduler() { end_all(); }

  /// A text that was asked for. Its result, or what was thrown, comes from the thread of step().
  struct Ticket {
    std::future<Generated> result;
    std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);
    /// Ends it before its next token, as "caller".
    void cancel() const { *cancelled = true; }
  };
  /// Nothing where too many wait, or stop() was called. on_token is called in the thread of step().
  /// Throws std::invalid_argument for a prompt without tokens, or of more than the model takes.
  std::optional<Ticket> submit(std::vector<std::int32_t> prompt, GenerationOptions options,
                               OnToken on_token = {});

  /// The next token of each text, and a piece of one prompt. False where there was nothing to do.
  bool step();
  /// Steps, and waits for texts, until stop(); then those that are left end as "caller".
  void run();
  void stop();

  struct Counts {
    Index active = 0, waiting = 0;
    /// Since the beginning.
    std::int64_t requests = 0, refused = 0;
    std::int64_t prompt_tokens = 0, reused_tokens = 0, generated_tokens = 0;
    std::size_t cache_bytes = 0;  // when a prompt went on, or a text ended, last
  };
  Counts counts() const;

 private:
  struct Job {
    Continuation text;
    std::promise<Generated> result;
    std::shared_ptr<std::atomic<bool>> cancelled;
    double prompt_seconds = 0, seconds = 0;  // of passes over the prompt, of the others
  };
  struct Slot {
    SequenceCache cache;
    std::unique_ptr<Speculation> speculation = {};  // null: none
    std::unique_ptr<Job> job = {};                  // null: free
    std::int64_t used = 0;                          // the step in which its last text ended
    SequenceCache* also() const { return speculation ? speculation->also() : nullptr; }
    void truncate(Index tokens);
    Index least_size() const;
    std::size_t bytes() const;
    void clear();
  };

  void admit();
  void place(std::unique_ptr<Job> job);
  Index reusable(const std::vector<std::int32_t>& held, Index least,
                 const std::vector<std::int32_t>& prompt) const;
  void pass(const std::vector<Slot*>& slots, Index most);
  std::vector<std::int32_t> draft(Slot& slot, Index most) const;
  void draw(Slot& slot, std::span<Real> logits, std::span<const std::int32_t> drafts,
            double seconds);
  void note_prompt(Slot& slot, const Tensor& hidden, Index begin, Index rows) const;
  void release(Slot& slot);
  void count_bytes();
  void fail_with(Slot& slot, const std::exception_ptr& error);
  static void end(Job& job);
  void end_all();

  GenerationModel model_;
  const Limits limits_;
  CachedDecoder decoder_;
  std::deque<Slot> slots_;
  std::int64_t steps_ = 0;
  std::size_t last_prompted_ = 0;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable wake_;
  std::deque<std::unique_ptr<Job>> waiting_;
  Counts counts_;
  bool stopped_ = false;
};

}  // namespace focus
