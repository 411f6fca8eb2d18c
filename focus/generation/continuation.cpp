#include "focus/generation/continuation.h"

namespace focus {
namespace {

/// Where the first of the texts begins; npos where none is there.
std::size_t first_of(const std::vector<std::string>& texts, const std::string& in) {
  std::size_t first = std::string::npos;
  for (const std::string& text : texts)
    if (!text.empty()) first = std::min(first, in.find(text));
  return first;
}

/// Where what may be the beginning of one of the texts begins at the end of `in`.
std::size_t begun(const std::vector<std::string>& texts, const std::string& in) {
  std::size_t first = in.size();
  for (const std::string& text : texts)
    for (std::size_t n = std::min(text.size(), in.size()); n > 0; --n)
      if (in.ends_with(std::string_view(text).substr(0, n))) {
        first = std::min(first, in.size() - n);
        break;
      }
  return first;
}

}  // namespace

Continuation::Continuation(const Tokenizer& tokenizer, std::vector<std::int32_t> ends,
                           Index positions, std::vector<std::int32_t> prompt,
                           GenerationOptions options, OnToken on_token)
    : ends_(std::move(ends)),
      ids_(std::move(prompt)),
      prompt_size_(ids_.size()),
      positions_(positions),
      options_(std::move(options)),
      on_token_(std::move(on_token)),
      stream_(tokenizer, ids_),
      rng_(options_.seed) {
  made_.prompt_tokens = std::ssize(ids_);
}

bool Continuation::write(const std::string& part, bool last) {
  std::string& text = made_.text;
  text += part;
  const std::size_t end =
      std::min(last ? text.size() : begun(options_.until, text), first_of(options_.until, text));
  const std::string news = text.substr(told_, end - told_);
  told_ = end;
  if (last) text.resize(end);
  return !on_token_ || on_token_(news, made_);
}

void Continuation::finish(const std::string& stop) {
  if (ended()) return;
  made_.stop = stop;
  write(stream_.finish(), true);
}

std::int32_t Continuation::drawn(std::span<Real> logits, std::span<const std::int32_t> ids,
                                 Rng& rng) const {
  const SamplingOptions& sampling = options_.sampling;
  penalise_repetitions(logits, ids, sampling.repetition_penalty);
  sampling.rules.forbid(logits, ids, prompt_size_, ends_);
  for (const auto& [id, bias] : options_.logit_bias) logits[id] += bias;
  return sample(logits, sampling, rng);
}

void Continuation::draw(std::span<Real> logits) {
  std::vector<Real> own;
  if (options_.top_logprobs) own.assign(logits.begin(), logits.end());
  const std::int32_t id = drawn(logits, ids_, rng_);
  if (options_.top_logprobs)
    made_.logprobs.push_back(log_probability(own, id, *options_.top_logprobs));
  ids_.push_back(id);
  if (std::ranges::find(ends_, id) != ends_.end()) return finish("end of text");
  made_.ids.push_back(id);
  const bool goes_on = write(stream_.add(id), false);
  if (first_of(options_.until, made_.text) != std::string::npos)
    finish("until");
  else if (!goes_on)
    finish("caller");
  else if (std::ssize(made_.ids) == options_.max_new_tokens)
    finish("max-new-tokens");
  else if (std::ssize(ids_) > positions_)
    finish("positions");
}

}  // namespace focus
