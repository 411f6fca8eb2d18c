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

double rate(Index tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

}  // namespace

Generated generate(const LoadedModel& model, Generator& generator,
                   const std::vector<std::int32_t>& prompt, const GenerationOptions& options,
                   const std::function<void(const std::string&)>& told) {
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
  // What may begin one of options.until waits until the next tokens decide.
  std::size_t held = 0, written = 0;
  for (const std::string& end : options.until) held = std::max(held, end.size());
  const auto tell = [&](std::size_t end) {
    while (end < done.text.size() && (done.text[end] & 0xC0) == 0x80) --end;
    if (told && end > written) told(done.text.substr(written, end - written));
    written = std::max(written, end);
  };
  const auto write = [&](const std::string& part) {
    done.text += part;
    const std::size_t known = std::min(done.text.size(), first_of(options.until, done.text));
    tell(known - std::min(known, held > 0 && known == done.text.size() ? held - 1 : 0));
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
    write(stream.add(id));
    if (first_of(options.until, done.text) != std::string::npos) {
      done.stop = "until";
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
  write(stream.finish());
  done.text.resize(std::min(done.text.size(), first_of(options.until, done.text)));
  tell(done.text.size());
  done.prefill_rate = rate(static_cast<Index>(prompt.size()), prefill_seconds);
  done.decode_rate = rate(decoded, decode_seconds);
  return done;
}

}  // namespace focus
