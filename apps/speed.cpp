#include "focus/speed/speed.h"

#include <spdlog/spdlog.h>

#include "apps/command.h"
#include "autograd/base/check.h"
#include "autograd/base/memory.h"
#include "autograd/machine.h"
#include "data/settings/struct_json.h"
#include "data/synthetic/far_corpus.h"
#include "data/text/format.h"

namespace focus::app {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr Index kTimedTokens = 32;  // timed after each length

/// The ids of the built-in tales, repeated if there are fewer than `count`.
Ids tale_ids(const LoadedModel& model, Index count) {
  const Ids text =
      model.prompt_ids(joined_texts(generate_far_documents({.documents = 20}), "\n\n"));
  model.require_ids(text, "the built-in text");
  Ids ids(static_cast<std::size_t>(count));
  for (std::size_t t = 0; t < ids.size(); ++t) ids[t] = text[t % text.size()];
  return ids;
}

std::vector<AttentionSpec> resolved(std::vector<std::string> words, const LoadedModel& model) {
  if (words.empty()) {
    words = {"dense"};
    if (model.focus() != nullptr) words.emplace_back();
  }
  std::vector<AttentionSpec> specs;
  for (const std::string& word : words) {
    specs.push_back(attention_to_generate(word, model, "--attention"));
    const AttentionKind kind = specs.back().kind;
    if (kind == AttentionKind::trained || kind == AttentionKind::baseline)
      fail(
          "--attention {}: it has no cache; decoding is timed with dense, hard:K, summary:M or "
          "local",
          word);
  }
  return specs;
}

void print_row(const DecodeSpeed& row, double bandwidth) {
  fmt::print("{:>8}  {:<26} {:>9.1f} {:>10.1f}% {:>10} {:>10} {:>8.1f} {:>9.0f}%\n", row.context,
             row.attention, row.tokens_per_second, 100 * row.keys_read,
             format_bytes(static_cast<double>(row.cache_bytes)),
             format_bytes(row.bytes_per_token()), row.bytes_per_second() / 1e9,
             100 * row.bytes_per_second() / bandwidth);
  std::fflush(stdout);
}

int time_decoding(Arguments arguments) {
  ModelOptions options;
  std::string dtype = "auto", json;
  std::vector<Index> lengths;
  std::vector<std::string> attentions;
  CLI::App app(
      "Decoding speed: tokens/s of token-by-token generation after a context of each length, and "
      "the share of the memory bandwidth that it uses. Each token reads all weights that multiply "
      "it, and the share of the cached keys that its attention reads.",
      "focus speed --decode");
  bool decode = false;
  app.add_flag("--decode", decode, "time a model's decoding");
  options.add_to(app, {"bos"});
  app.add_option("--lengths", lengths,
                 "tokens in the cache before the timed ones (default: 5, 1024 and the largest that "
                 "fits the model's positions, at most 8160)")
      ->delimiter(',');
  add_attention_option(app, attentions,
                       "attentions to time, interleaved: dense, hard:2, summary:8, local (default: "
                       "dense, and the default of a Focus adapter)");
  add_cache_option(app, dtype);
  app.add_option("--json", json, kJsonHelp);
  parse_arguments(app, arguments);

  LoadedModel model = options.load();
  const Index most = model.decoder->config().max_position_embeddings - kTimedTokens;
  if (lengths.empty())
    for (const Index length : {Index{5}, Index{1024}, std::min<Index>(most, 8160)})
      if (length <= most && (lengths.empty() || length > lengths.back())) lengths.push_back(length);
  for (const Index length : lengths)
    if (length < 1 || length > most)
      fail(
          "--lengths {}: a length must be from 1 to {}: {} has {} positions, and {} tokens are "
          "decoded",
          length, most, options.base, most + kTimedTokens, kTimedTokens);
  const std::vector<AttentionSpec> specs = resolved(attentions, model);
  const double bandwidth = read_bandwidth();
  const CacheDtype cache = cache_dtype(dtype, options.precision);
  fmt::print(
      "{}\n{}, {}, {} cache; memory read at {:.1f} GB/s; {} tokens timed after each context\n\n",
      this_machine().line(), options.base, name_of(options.precision), name_of(cache),
      bandwidth / 1e9, kTimedTokens);
  fmt::print("{:>8}  {:<26} {:>9} {:>11} {:>10} {:>10} {:>8} {:>10}\n", "context", "attention",
             "tokens/s", "keys read", "cache", "per token", "GB/s", "of memory");
  std::vector<DecodeSpeed> rows;
  for (const Index length : lengths) {
    const Ids ids = tale_ids(model, length + kTimedTokens);
    for (const AttentionSpec& spec : specs) {
      rows.push_back(measure_decoding(model, spec, ids, length, cache));
      print_row(rows.back(), bandwidth);
    }
  }
  write_json(json, {{"machine", machine_json()},
                    {"model", options.base},
                    {"adapter", options.adapter},
                    {"precision", name_of(options.precision)},
                    {"cache_type", name_of(cache)},
                    {"read_bytes_per_second", bandwidth},
                    {"rows", struct_to_json(rows)}});
  return 0;
}

std::string cell(double seconds) {
  return seconds > 0 ? fmt::format("{:.2f}", 1e3 * seconds) : "-";
}

void print_steps(const MeasuredSteps& m) {
  const RunConfig& config = m.session.config();
  const ModelConfig& model = m.model();
  const AttentionSpec mode = m.mode();
  const std::string balance = mode.kind == AttentionKind::dense
                                  ? ""
                                  : fmt::format(", {} balance", value_text(*mode.balance));
  fmt::print("{}\n", this_machine().line());
  fmt::print(
      "{}{}: {} layers, hidden size {}, {} heads, vocabulary of {}; {} parameters, {} trainable\n",
      m.shape.empty() ? "" : m.shape + ", ", model.model_type, model.num_hidden_layers,
      model.hidden_size, model.num_attention_heads, model.vocab_size,
      format_count(static_cast<double>(m.session.count_all())),
      format_count(static_cast<double>(m.session.count_trainable())));
  fmt::print("{}, attention {}{}; {} x {} x {} tokens (batch, accumulate, context)\n\n",
             value_text(config.method), mode.name(), balance, config.data.batch,
             config.data.gradient_accumulation_steps, config.data.context);
  fmt::print("ms per step      min {:.2f}  median {:.2f}  of {}\n", 1e3 * m.fastest(),
             1e3 * median(m.seconds), m.seconds.size());
  fmt::print("tokens/s         best {:.1f}  median {:.1f}\n", m.tokens() / m.fastest(),
             m.tokens() / median(m.seconds));
  fmt::print("GFLOP/s          {:.1f}, {:.1f} % of the measured peak of {:.1f}\n", m.gflops(),
             100 * m.gflops() / m.peak_gflops, m.peak_gflops);
  fmt::print("memory           {} resident at peak, {} in tensors at peak\n\n",
             format_bytes(static_cast<double>(peak_resident_bytes())),
             format_bytes(static_cast<double>(pool_stats().peak)));
  fmt::print("{:<20} {:>11} {:>12} {:>10} {:>7}\n", "phase (fastest)", "forward ms", "backward ms",
             "all ms", "share");
  for (const PhaseTime& phase : m.phases())
    fmt::print("{:<20} {:>11} {:>12} {:>10} {:>6.1f}%\n", phase.name, cell(phase.forward),
               cell(phase.backward), cell(phase.total()), 100 * phase.total() / m.fastest());
  fmt::print("\nthe loss computes its gradient in its forward pass\n");
}

int time_training(Arguments arguments) {
  RunConfig config;
  std::string json, shape, config_file;
  int repeats = 3;
  Index vocab_size = 50257;
  CLI::App app(
      "Times training steps on random weights and random token ids: tokens/s, GFLOP/s, memory, and "
      "the time of each phase. Needs no checkpoint and no text, and writes only --json. The config "
      "gives the shape (model.*), the method, focus.*, data.context, batch and "
      "gradient_accumulation_steps, optim.*, seed and threads; base, tokenizer, texts and out are "
      "ignored. GFLOP/s counts two operations for each multiply-add of matrix products and "
      "attention tiles. The peak is measured at the start with multiply-adds on registers only, on "
      "the same number of threads.",
      "focus speed --step");
  bool step = false;
  app.add_flag("--step", step, "time training steps");
  add_config_arguments(app, config_file);
  app.add_option("--shape", shape,
                 "preset for model.*, vocabulary and data.context: gpt2 (124M) or llama-15m");
  app.add_option("--vocab-size", vocab_size, "vocabulary size (default: the preset's, or 50257)");
  app.add_option("--repeats", repeats, "timed steps after one warm-up step (default 3)");
  app.add_option("--json", json, kJsonHelp);
  parse_arguments(app, arguments);

  if (!shape.empty()) {
    const NamedShape& named = find_shape(shape);
    read_config_text(named.config, shape, {}, config);
    if (app.count("--vocab-size") == 0) vocab_size = named.vocab_size;
  }
  read_config_arguments(app, config_file, config);
  check(repeats > 0, "--repeats must be positive, not {}", repeats);
  check(vocab_size > 0 && vocab_size <= 1 << 24, "--vocab-size must be from 1 to {}, not {}",
        1 << 24, vocab_size);
  check(config.method != Method::two_phase,
        "method two_phase has two kinds of steps: time method retrofit, then full with attention "
        "focus");
  set_threads(config.threads);

  const double peak = measured_peak_gflops();
  Session session =
      random_session(config, config.model.to_model_config(vocab_size, config.data.context));
  reset_pool_peak();
  const auto report = [&](int step_number, double seconds) {
    if (step_number == 0)
      spdlog::info("warm-up");
    else
      spdlog::info("{}/{}  {:.3f} s", step_number, repeats, seconds);
  };
  MeasuredSteps measured{.session = session, .shape = shape, .peak_gflops = peak};
  time_steps(measured, repeats, report);
  print_steps(measured);
  auto figures = nlohmann::ordered_json{{"machine", machine_json()}};
  figures.update(to_json(measured));
  write_json(json, figures);
  return 0;
}

}  // namespace

int run_speed(Arguments arguments) {
  if (std::ranges::find(arguments, "--decode") != arguments.end()) return time_decoding(arguments);
  if (std::ranges::find(arguments, "--step") != arguments.end()) return time_training(arguments);
  std::vector<Index> lengths = {512, 1024, 2048, 4096, 8192, 16384};
  std::string json;
  AttentionSpeedOptions options;
  CLI::App app(
      "Compares full causal attention with hard or summary Focus attention on random q, k and v of "
      "one sequence, interleaved. Times a model's decoding with --decode, training steps with "
      "--step (add --help for their options). The time of Focus attention includes sorting by "
      "group and the local window; the groups are computed before, and that time is reported "
      "separately. GFLOP/s counts 4 head_dim operations per attended pair and head, and 2.5 times "
      "that for backward. The ideal speed-up is the number of all pairs divided by that of "
      "attended pairs.",
      "focus speed");
  app.add_option("--lengths", lengths, "tokens, one run each (default 512 to 16384)")
      ->delimiter(',');
  std::string attention = "hard:1";
  add_attention_option(app, attention,
                       "attention to compare with dense: hard:2 (default hard:1), "
                       "hard:2:gate=keep; summary:2 times groups of keys");
  add_settings(app, without(config_fields(options), {"top_k", "hard_gate"}));
  app.add_option("--json", json, kJsonHelp);
  parse_arguments(app, arguments);
  options.read_attention(attention, "--attention");
  options.validate();
  for (const Index length : lengths)
    check(length > 0, "--lengths must be positive, not {}", length);
  std::ranges::sort(lengths);

  std::vector<AttentionSpeed> rows;
  nlohmann::ordered_json json_rows = nlohmann::ordered_json::array();
  for (const Index length : lengths) {
    rows.push_back(measure_attention(options, length, [&](std::string_view what) {
      spdlog::info("{} tokens: {}", length, what);
    }));
    json_rows.push_back(to_json(rows.back()));
    trim_pool();  // frees the buffers of this length
  }

  fmt::print("{}", speed_text(options, rows));
  nlohmann::ordered_json figures = {{"machine", machine_json()}};
  figures.update(settings_json(config_fields(options)));
  figures["attention"] = options.attention_text();
  figures["rows"] = json_rows;
  write_json(json, figures);
  return 0;
}

}  // namespace focus::app
