#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "focus/generation/sampling.h"
#include "focus/generation/text_stream.h"

namespace focus {

struct GenerationOptions {
  Index max_new_tokens = 64;  // 0: only the prompt is computed
  std::uint64_t seed = 1;     // of the draws
  SamplingOptions sampling = {};
  std::vector<std::string> until = {};  // the text ends before the first of these
  std::vector<std::pair<std::int32_t, Real>> logit_bias = {};  // added to the logits of ids
  /// Log-probabilities of the new tokens, with so many most probable ones; and of the prompt's.
  std::optional<Index> top_logprobs = {};
  bool prompt_logprobs = false;
};

struct Generated {
  std::vector<std::int32_t> ids;
  std::string text;
  /// Why it ended: "end of text", "until", "max-new-tokens", "positions" or "caller".
  std::string stop;
  double prefill_rate = 0, decode_rate = 0;    // tokens per second
  Index prompt_tokens = 0, reused_tokens = 0;  // the latter were in a cache
  Index computed_tokens = 0;                   // prompt and new ones that went through the model
  Index passes = 0;                            // behind the prompt's
  Index drafted_tokens = 0, right_tokens = 0;  // that Speculation guessed; that were drawn then
  double tokens_per_pass() const {
    return static_cast<double>(passes + right_tokens) /
           static_cast<double>(std::max<Index>(1, passes));
  }
  std::optional<std::size_t> cache_bytes;  // only with a cache
  std::optional<double> keys_read;         // SequenceCache::share_read(), behind the prompt
  /// Where they were asked for: of the prompt's tokens but the first, and of the new ones, with
  /// that which ended the text. They are the model's own, before temperature, penalty and bias.
  std::vector<TokenLogprob> prompt_logprobs, logprobs;
};

/// Called after every token with the text that it adds, and in the end with what was held back.
/// Empty while a character is not whole, or what came may be the beginning of an `until`. False
/// ends the generation.
using OnText = std::function<bool(const std::string& text)>;
/// The same, with what was made so far.
using OnToken = std::function<bool(const std::string& text, const Generated& made)>;

/// One text that is continued: draws its tokens, makes them text, knows where it ends.
class Continuation {
 public:
  /// `ends`: ids that end a text. `positions`: tokens that the model takes at most. The tokenizer
  /// must outlive it.
  Continuation(const Tokenizer& tokenizer, std::vector<std::int32_t> ends, Index positions,
               std::vector<std::int32_t> prompt, GenerationOptions options, OnToken on_token);

  /// Draws the next token from the logits after all of ids(), and changes them. [vocab_size]
  void draw(std::span<Real> logits);
  /// The token that these logits draw behind `ids`, by the random numbers that `rng` has left;
  /// changes the logits.
  std::int32_t drawn(std::span<Real> logits, std::span<const std::int32_t> ids, Rng& rng) const;
  /// Ends it, unless it has ended.
  void finish(const std::string& stop);

  bool ended() const { return !made_.stop.empty(); }
  /// The prompt, and what was drawn.
  const std::vector<std::int32_t>& ids() const { return ids_; }
  std::size_t prompt_size() const { return prompt_size_; }
  const GenerationOptions& options() const { return options_; }
  const Rng& rng() const { return rng_; }
  Generated& made() { return made_; }

 private:
  bool write(const std::string& part, bool last);

  std::vector<std::int32_t> ends_, ids_;
  std::size_t prompt_size_;
  Index positions_;
  GenerationOptions options_;
  OnToken on_token_;
  TextStream stream_;
  Rng rng_;
  Generated made_;
  std::size_t told_ = 0;  // bytes of the text
};

}  // namespace focus
