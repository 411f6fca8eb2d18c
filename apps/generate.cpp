#include <cstdio>

#include "apps/command.h"
#include "apps/terminal/progress.h"
#include "autograd/check.h"
#include "autograd/clock.h"
#include "data/text/text.h"
#include "focus/generation/generator.h"
#include "focus/generation/sampling.h"
#include "focus/generation/text_stream.h"

namespace focus {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr Index kMeasuredSteps = 32;  // decode steps that --measure times at each length

struct Options {
  ModelOptions model;
  std::string prompt, prompt_file, json, attention;
  Index max_new_tokens = 64;
  std::uint64_t seed = 1;
  SamplingOptions sampling;
  bool no_cache = false;
  std::vector<Index> measure;
};

/// Calls f and returns how many seconds it took.
template <class F>
double timed(F&& f) {
  const double start = now();
  f();
  return now() - start;
}

double rate(Index tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

/// What --attention names; without it hard k=1 where there is a Focus, what the model was trained
/// with, or dense. Refuses what cannot generate.
AttentionSpec attention_of(const Options& o, const LoadedModel& model) {
  AttentionSpec spec;
  if (!o.attention.empty())
    spec = parse_attention(o.attention, "--attention");
  else if (model.mechanism())
    spec = {.kind = "trained"};
  else if (model.focus())
    spec = {.kind = "hard", .top_k = 1};
  if (spec.kind == "soft" || spec.kind == "focus")
    fail("--attention {}: soft attention reads every key; generation is dense, hard:K or local",
         o.attention);
  spec = resolve_attention(spec, model, "--attention");
  if (spec.balance == Balance::sequence)
    fail(
        "{}: with sequence balance a token's groups depend on later tokens, so it cannot generate; "
        "--attention hard:{}:balance=carried uses the potentials that it carries",
        o.model.adapter.empty() ? o.model.base : o.model.adapter, spec.top_k);
  return spec;
}

Ids prompt_ids(const Options& options, const LoadedModel& model) {
  const std::string text =
      options.prompt_file.empty() ? options.prompt : read_text_file(options.prompt_file);
  Ids ids = model.require_tokenizer().encode(text);
  if (ids.empty()) fail("the prompt is empty; give it some text to go on from");
  if (const auto start = model.document_start()) ids.insert(ids.begin(), *start);
  return ids;
}

void write_now(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

struct Generated {
  Ids ids;
  std::string text, stop;  // why it ended
  double prefill_rate = 0, decode_rate = 0;
};

/// Goes on from the prompt, the new text on stdout as it comes.
Generated write_on(const Options& options, const LoadedModel& model, const Ids& prompt,
                   Generator& generator) {
  const Index positions = model.decoder->config().max_position_embeddings;
  TextStream stream(model.require_tokenizer(), prompt);
  Rng rng(options.seed);
  const auto end = model.document_end();
  Tensor logits;
  const double prefill_seconds = timed([&] { logits = generator.next_logits(prompt); });
  double decode_seconds = 0;
  Index decoded = 0;
  Generated done;
  const auto write = [&](const std::string& part) {
    write_now(part);
    done.text += part;
  };
  while (done.stop.empty()) {
    const std::int32_t id = sample(logits.span(), options.sampling, rng);
    if (end && id == *end) {
      done.stop = "end of text";
      break;
    }
    done.ids.push_back(id);
    write(stream.add(id));
    if (static_cast<Index>(done.ids.size()) == options.max_new_tokens) {
      done.stop = "max-new-tokens";
    } else if (generator.size() == positions) {
      done.stop = "positions";
    } else {
      decode_seconds += timed([&] { logits = generator.next_logits(std::span(&id, 1)); });
      ++decoded;
    }
  }
  write(stream.finish());
  write_now("\n");
  done.prefill_rate = rate(static_cast<Index>(prompt.size()), prefill_seconds);
  done.decode_rate = rate(decoded, decode_seconds);
  return done;
}

int generate(const Options& options, LoadedModel& model, const AttentionSpec& spec) {
  const Ids prompt = prompt_ids(options, model);
  const Index positions = model.decoder->config().max_position_embeddings;
  const auto prompt_tokens = static_cast<Index>(prompt.size());
  if (prompt_tokens > positions)
    fail("the prompt has {} tokens, but {} has {} positions; shorten it", prompt_tokens,
         options.model.base, positions);
  const ActiveAttention active(model, spec);
  if (!active.causal())
    fail(
        "{}: with {} what a token attends depends on later tokens, so it cannot generate; "
        "--attention dense ignores it",
        options.model.base, active.name());
  // A mechanism of the table has no cache: it computes everything again with every token.
  Generator generator(*model.decoder, model.focus(), active.mode(),
                      !options.no_cache && active.mechanism() == nullptr);
  const Generated done = write_on(options, model, prompt, generator);

  if (done.stop == "positions")
    fmt::print(stderr, "stopped: the model has no more than {} positions\n", positions);
  fmt::print(stderr, "prompt {} tokens, {:.1f} tok/s; {} new tokens, {:.1f} tok/s ({})\n",
             prompt_tokens, done.prefill_rate, done.ids.size(), done.decode_rate, done.stop);
  fmt::print(stderr, "attention {}, {}, ", active.title(), name_of(options.model.compute));
  nlohmann::ordered_json share, bytes;
  if (const RoutedCache* cache = generator.cache()) {
    share = cache->share_read();
    bytes = cache->bytes();
    fmt::print(stderr, "{:.1f}% of the cached keys read, cache {}\n", 100 * cache->share_read(),
               format_bytes(static_cast<double>(cache->bytes())));
  } else {
    fmt::print(stderr, "no cache\n");
  }
  write_json(options.json, {{"model", options.model.base},
                            {"adapter", options.model.adapter},
                            {"attention", active.name()},
                            {"routing", active.routing()},
                            {"compute", name_of(options.model.compute)},
                            {"prompt_tokens", prompt_tokens},
                            {"new_tokens", done.ids.size()},
                            {"ids", done.ids},
                            {"text", done.text},
                            {"stop", done.stop},
                            {"prefill_tokens_per_second", done.prefill_rate},
                            {"decode_tokens_per_second", done.decode_rate},
                            {"keys_read", share},
                            {"cache_bytes", bytes}});
  return 0;
}

/// Decoding the last of `ids` one by one on a cache that holds those before.
struct DecodeSpeed {
  double tokens_per_second = 0;  // of the median step
  double share_read = 1;
  std::size_t bytes = 0;
};
DecodeSpeed measure_decoding(LoadedModel& model, const AttentionMode& mode, const Ids& ids) {
  Generator generator(*model.decoder, model.focus(), mode);
  const std::size_t held = ids.size() - static_cast<std::size_t>(kMeasuredSteps);
  generator.next_logits(std::span(ids).first(held));
  std::vector<double> seconds;
  for (std::size_t t = held; t < ids.size(); ++t)
    seconds.push_back(timed([&] { generator.next_logits(std::span(ids).subspan(t, 1)); }));
  const auto median = seconds.begin() + kMeasuredSteps / 2;
  std::ranges::nth_element(seconds, median);
  return {rate(1, *median), generator.cache()->share_read(), generator.cache()->bytes()};
}

int measure(const Options& options, LoadedModel& model, const AttentionSpec& spec) {
  const ActiveAttention active(model, spec);
  const AttentionMode& mode = active.mode();
  if (mode.kind != AttentionMode::Kind::hard)
    fail("--measure compares the routed cache with the dense one: it needs hard attention");
  const Index positions = model.decoder->config().max_position_embeddings;
  for (const Index length : options.measure)
    if (length <= kMeasuredSteps || length > positions)
      fail("--measure {}: a length must be from {} to the {} positions of {}", length,
           kMeasuredSteps + 1, positions, options.model.base);
  const Ids prompt = prompt_ids(options, model);
  fmt::print("{}, {}, against dense, {} tokens decoded up to each context\n\n", active.title(),
             name_of(options.model.compute), kMeasuredSteps);
  fmt::print("{:>8} {:>13} {:>13} {:>7} {:>10} {:>12} {:>12}\n", "context", "dense tok/s",
             "routed tok/s", "ratio", "keys read", "dense cache", "routed cache");
  auto rows = nlohmann::ordered_json::array();
  for (const Index length : options.measure) {
    Ids ids(static_cast<std::size_t>(length));
    for (std::size_t t = 0; t < ids.size(); ++t) ids[t] = prompt[t % prompt.size()];
    const DecodeSpeed dense = measure_decoding(model, {.kind = AttentionMode::Kind::dense}, ids);
    const DecodeSpeed routed = measure_decoding(model, mode, ids);
    const double ratio = routed.tokens_per_second / dense.tokens_per_second;
    fmt::print("{:>8} {:>13.1f} {:>13.1f} {:>7.2f} {:>9.1f}% {:>12} {:>12}\n", length,
               dense.tokens_per_second, routed.tokens_per_second, ratio, 100 * routed.share_read,
               format_bytes(static_cast<double>(dense.bytes)),
               format_bytes(static_cast<double>(routed.bytes)));
    std::fflush(stdout);
    rows.push_back({{"context", length},
                    {"dense_tokens_per_second", dense.tokens_per_second},
                    {"routed_tokens_per_second", routed.tokens_per_second},
                    {"ratio", ratio},
                    {"keys_read", routed.share_read},
                    {"dense_cache_bytes", dense.bytes},
                    {"routed_cache_bytes", routed.bytes}});
  }
  write_json(options.json, {{"model", options.model.base},
                            {"adapter", options.model.adapter},
                            {"attention", active.name()},
                            {"routing", active.routing()},
                            {"compute", name_of(options.model.compute)},
                            {"decoded_tokens", kMeasuredSteps},
                            {"rows", rows}});
  return 0;
}

}  // namespace

int run_generate(Arguments arguments) {
  Options o;
  CLI::App app(
      "Goes on from a prompt: the new text on stdout as it comes, figures on stderr. Keys and "
      "values are cached by class, so that with hard attention a new token reads its own classes "
      "and the local window only.",
      "focus generate");
  o.model.add_to(app);
  CLI::Option_group* prompt = app.add_option_group("prompt", "one of");
  prompt->add_option("--prompt", o.prompt, "the text to go on from");
  prompt->add_option("--prompt-file", o.prompt_file, "a file that holds it (.txt, .xz)");
  prompt->require_option(1);
  app.add_option("--max-new-tokens", o.max_new_tokens, "stop after so many")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  add_attention_option(
      app, o.attention,
      "dense, hard:2 (a token keeps its 2 best groups), local, or another mechanism, without a "
      "cache; default: hard:1 where there is a Focus, what the model was trained with, else dense");
  refuse_attention_options(app, {"--hard-k", "--hard-gate", "--routing"});
  app.add_option("--temperature", o.sampling.temperature, "of the softmax; 0: always the likeliest")
      ->capture_default_str();
  app.add_option("--top-k", o.sampling.top_k, "draw from the likeliest N tokens; 0: from all")
      ->capture_default_str();
  app.add_option("--top-p", o.sampling.top_p,
                 "draw from the fewest tokens that reach this probability together")
      ->capture_default_str();
  app.add_option("--seed", o.seed, "of the draws")->capture_default_str();
  app.add_flag("--no-cache", o.no_cache, "compute everything again for each token: the reference");
  app.add_option("--measure", o.measure,
                 "instead: tokens/s at these context lengths (the prompt, repeated), routed cache "
                 "against dense")
      ->delimiter(',');
  app.add_option("--json", o.json, "write the figures to this file too");
  parse_arguments(app, arguments);

  o.sampling.validate();
  LoadedModel model = o.model.load();
  const AttentionSpec spec = attention_of(o, model);
  return o.measure.empty() ? generate(o, model, spec) : measure(o, model, spec);
}

}  // namespace focus
