#include <cstdio>

#include "apps/command.h"
#include "apps/terminal/progress.h"
#include "focus/generation/text_stream.h"
#include "autograd/check.h"
#include "autograd/clock.h"
#include "data/text/text.h"
#include "focus/generation/generator.h"
#include "focus/generation/sampling.h"

namespace focus {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr Index kMeasuredSteps = 32;  // decode steps that --measure times at each length

struct Options {
  std::string base, adapter, tokenizer, prompt, prompt_file, json;
  std::string attention = "auto", hard_gate = "auto", routing = "auto";
  int hard_k = 1, threads = 0;
  Compute compute = Compute::float32;
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

Balance balance_of(const Options& options, const FocusModel& focus) {
  Balance balance = focus.config().balance;
  const auto names = enum_names(balance);
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == options.routing) balance = static_cast<Balance>(i);
  if (balance == Balance::sequence)
    fail(
        "{}: with sequence balance a token's groups depend on later tokens, so it cannot generate; "
        "--routing carried uses the potentials that it carries",
        options.adapter.empty() ? options.base : options.adapter);
  return balance;
}

/// Whether the rival attention that the model was trained with is what generates. Puts it away
/// where another attention was asked for.
bool generates_with_rival(const Options& options, LoadedModel& model) {
  if (!model.rival) return false;
  if (options.attention == "dense") {
    clear_mechanisms(*model.decoder);
    return false;
  }
  if (options.attention == "hard")
    fail("{}: was trained with {} and has no Focus; leave --attention out, or use dense",
         options.base, model.rival->name());
  if (!options.measure.empty())
    fail("--measure compares the caches of hard attention with dense; {} was trained with {}",
         options.base, model.rival->name());
  if (!model.rival->causal())
    fail(
        "{}: with {} what a token attends depends on later tokens, so it cannot generate; "
        "--attention dense ignores it",
        options.base, model.rival->name());
  return true;
}

AttentionMode mode_of(const Options& options, const FocusModel* focus) {
  if (options.attention == "dense" || (options.attention == "auto" && focus == nullptr))
    return {.kind = AttentionMode::Kind::dense};
  if (focus == nullptr)
    fail("{}: hard attention needs a Focus: name one with --adapter, or use --attention dense",
         options.base);
  const int groups = focus->config().num_groups;
  if (options.hard_k > groups)
    fail("--hard-k {} is more than the {} groups of {}", options.hard_k, groups,
         options.adapter.empty() ? options.base : options.adapter);
  return {.kind = AttentionMode::Kind::hard,
          .top_k = options.hard_k,
          .balance = balance_of(options, *focus),
          .hard_gate = options.hard_gate == "auto"   ? focus->config().hard_gate
                       : options.hard_gate == "drop" ? HardGate::drop
                                                     : HardGate::keep};
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

int generate(const Options& options, LoadedModel& model, const AttentionMode& mode,
             bool with_rival) {
  const Ids prompt = prompt_ids(options, model);
  const Index positions = model.decoder->config().max_position_embeddings;
  const auto prompt_tokens = static_cast<Index>(prompt.size());
  if (prompt_tokens > positions)
    fail("the prompt has {} tokens, but {} has {} positions; shorten it", prompt_tokens,
         options.base, positions);
  // A rival has no cache: it computes everything again with every token.
  Generator generator(*model.decoder, model.focus.get(), mode, !options.no_cache && !with_rival);
  const std::string attention = with_rival ? model.rival->name() : mode.name();
  TextStream stream(model.require_tokenizer(), prompt);
  Rng rng(options.seed);
  const auto end = model.document_end();
  Tensor logits;
  const double prefill_seconds = timed([&] { logits = generator.next_logits(prompt); });
  double decode_seconds = 0;
  Index decoded = 0;
  Ids ids;
  std::string text, stop;
  while (stop.empty()) {
    const std::int32_t id = sample(logits.span(), options.sampling, rng);
    if (end && id == *end) {
      stop = "end of text";
      break;
    }
    ids.push_back(id);
    const std::string part = stream.add(id);
    write_now(part);
    text += part;
    if (static_cast<Index>(ids.size()) == options.max_new_tokens) {
      stop = "max-new-tokens";
    } else if (generator.size() == positions) {
      stop = "positions";
    } else {
      decode_seconds += timed([&] { logits = generator.next_logits(std::span(&id, 1)); });
      ++decoded;
    }
  }
  const std::string rest = stream.finish();
  text += rest;
  write_now(rest + "\n");

  const double prefill_rate = rate(prompt_tokens, prefill_seconds);
  const double decode_rate = rate(decoded, decode_seconds);
  const std::string routing = EvalRow{.mode = mode}.routing();
  if (stop == "positions")
    fmt::print(stderr, "stopped: the model has no more than {} positions\n", positions);
  fmt::print(stderr, "prompt {} tokens, {:.1f} tok/s; {} new tokens, {:.1f} tok/s ({})\n",
             prompt_tokens, prefill_rate, ids.size(), decode_rate, stop);
  fmt::print(stderr, "attention {}{}, {}, ", attention, routing == "-" ? "" : ", " + routing,
             name_of(options.compute));
  nlohmann::ordered_json share, bytes;
  if (const RoutedCache* cache = generator.cache()) {
    share = cache->share_read();
    bytes = cache->bytes();
    fmt::print(stderr, "{:.1f}% of the cached keys read, cache {}\n", 100 * cache->share_read(),
               format_bytes(static_cast<double>(cache->bytes())));
  } else {
    fmt::print(stderr, "no cache\n");
  }
  write_json(options.json, {{"model", options.base},
                            {"adapter", options.adapter},
                            {"attention", attention},
                            {"routing", routing},
                            {"compute", name_of(options.compute)},
                            {"prompt_tokens", prompt_tokens},
                            {"new_tokens", ids.size()},
                            {"ids", ids},
                            {"text", text},
                            {"stop", stop},
                            {"prefill_tokens_per_second", prefill_rate},
                            {"decode_tokens_per_second", decode_rate},
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
  Generator generator(*model.decoder, model.focus.get(), mode);
  const std::size_t held = ids.size() - static_cast<std::size_t>(kMeasuredSteps);
  generator.next_logits(std::span(ids).first(held));
  std::vector<double> seconds;
  for (std::size_t t = held; t < ids.size(); ++t)
    seconds.push_back(timed([&] { generator.next_logits(std::span(ids).subspan(t, 1)); }));
  const auto median = seconds.begin() + kMeasuredSteps / 2;
  std::ranges::nth_element(seconds, median);
  return {rate(1, *median), generator.cache()->share_read(), generator.cache()->bytes()};
}

int measure(const Options& options, LoadedModel& model, const AttentionMode& mode) {
  if (mode.kind != AttentionMode::Kind::hard)
    fail("--measure compares the routed cache with the dense one: it needs hard attention");
  const Index positions = model.decoder->config().max_position_embeddings;
  for (const Index length : options.measure)
    if (length <= kMeasuredSteps || length > positions)
      fail("--measure {}: a length must be from {} to the {} positions of {}", length,
           kMeasuredSteps + 1, positions, options.base);
  const Ids prompt = prompt_ids(options, model);
  const std::string routing = EvalRow{.mode = mode}.routing();
  fmt::print("{}{}, {}, against dense, {} tokens decoded up to each context\n\n", mode.name(),
             routing == "-" ? "" : ", " + routing, name_of(options.compute), kMeasuredSteps);
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
  write_json(options.json, {{"model", options.base},
                            {"adapter", options.adapter},
                            {"attention", mode.name()},
                            {"routing", routing},
                            {"compute", name_of(options.compute)},
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
  app.add_option("base", o.base, "the model: a store or a Hugging Face folder")->required();
  app.add_option("--adapter", o.adapter, "the adapter (focus.h5, lora.h5) or a PEFT folder");
  app.add_option("--tokenizer", o.tokenizer, "instead of the model's own");
  CLI::Option_group* prompt = app.add_option_group("prompt", "one of");
  prompt->add_option("--prompt", o.prompt, "the text to go on from");
  prompt->add_option("--prompt-file", o.prompt_file, "a file that holds it (.txt, .xz)");
  prompt->require_option(1);
  app.add_option("--max-new-tokens", o.max_new_tokens, "stop after so many")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option(
         "--attention", o.attention,
         "auto: hard where there is a Focus, the rival that the model was trained with, else dense")
      ->check(CLI::IsMember({"auto", "dense", "hard"}));
  app.add_option("--hard-k", o.hard_k,
                 "groups a token keeps in hard attention; 0: the local window alone")
      ->check(CLI::Range(0, 64))
      ->capture_default_str();
  app.add_option("--hard-gate", o.hard_gate,
                 "drop or keep the affinity on attended pairs; auto: as configured")
      ->check(CLI::IsMember({"auto", "drop", "keep"}));
  app.add_option("--routing", o.routing,
                 "carried or none; auto: as trained. sequence is not causal and is refused")
      ->check(CLI::IsMember({"auto", "carried", "sequence", "none"}));
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
  add_compute_option(app, o.compute);
  app.add_option("--threads", o.threads, "threads");
  app.add_option("--json", o.json, "write the figures to this file too");
  parse_arguments(app, arguments);

  o.sampling.validate();
  set_threads(o.threads);
  LoadedModel model = load_model(o.base, o.tokenizer, o.compute);
  if (!o.adapter.empty()) load_adapter(o.adapter, model);
  const bool with_rival = generates_with_rival(o, model);
  const AttentionMode mode = mode_of(o, model.focus.get());
  return o.measure.empty() ? generate(o, model, mode, with_rival) : measure(o, model, mode);
}

}  // namespace focus
