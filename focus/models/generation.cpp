#include "focus/models/generation.h"

#include <algorithm>

#include "autograd/base/profile.h"
#include "focus/generation/text_stream.h"

namespace focus {
namespace {

/// Calls f and returns how many seconds it took.
template <class F>
double timed(F&& f) {
  const double start = now();
  f();
  return now() - start;
}

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

double rate(Index tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

}  // namespace

Generated generate(const LoadedModel& model, Generator& generator,
                   const std::vector<std::int32_t>& prompt, const GenerationOptions& options,
                   const OnText& on_text) {
  const Index positions = model.decoder->config().max_position_embeddings;
  TextStream stream(model.require_tokenizer(), prompt);
  Rng rng(options.seed);
  const std::vector<std::int32_t> ends = model.end_ids();
  std::vector<std::int32_t> text = prompt;
  Tensor logits;
  const double prefill_seconds = timed([&] { logits = generator.next_logits(prompt); });
  double decode_seconds = 0;
  Index decoded = 0;
  Generated done;
  std::size_t told = 0;  // bytes of the text
  const auto write = [&](const std::string& part, bool last) {
    done.text += part;
    const std::size_t end = std::min(last ? done.text.size() : begun(options.until, done.text),
                                     first_of(options.until, done.text));
    const bool goes_on = !on_text || on_text(done.text.substr(told, end - told));
    told = end;
    return goes_on;
  };
  while (done.stop.empty()) {
    std::int32_t id = 0;
    const double sampling_seconds = timed([&] {
      penalise_repetitions(logits.span(), text, options.sampling.repetition_penalty);
      options.sampling.rules.forbid(logits.span(), text, prompt.size(), ends);
      id = sample(logits.span(), options.sampling, rng);
    });
    text.push_back(id);
    if (std::ranges::find(ends, id) != ends.end()) {
      done.stop = "end of text";
      break;
    }
    done.ids.push_back(id);
    const bool goes_on = write(stream.add(id), false);
    if (first_of(options.until, done.text) != std::string::npos) {
      done.stop = "until";
    } else if (!goes_on) {
      done.stop = "caller";
    } else if (static_cast<Index>(done.ids.size()) == options.max_new_tokens) {
      done.stop = "max-new-tokens";
    } else if (generator.size() == positions) {
      done.stop = "positions";
    } else {
      decode_seconds +=
          sampling_seconds + timed([&] { logits = generator.next_logits(std::span(&id, 1)); });
      ++decoded;
    }
  }
  write(stream.finish(), true);
  done.text.resize(std::min(done.text.size(), first_of(options.until, done.text)));
  done.prefill_rate = rate(static_cast<Index>(prompt.size()), prefill_seconds);
  done.decode_rate = rate(decoded, decode_seconds);
  return done;
}

}  // namespace focus
