#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>

#include "apps/command.h"
#include "apps/terminal/machine.h"
#include "apps/terminal/progress.h"
#include "autograd/check.h"
#include "autograd/clock.h"
#include "autograd/gemm/gemm.h"
#include "autograd/profile.h"
#include "focus/train/session.h"

namespace focus {
namespace {

using Json = nlohmann::ordered_json;

/// A published model's shape: the recipe's keys go over it.
struct NamedShape {
  std::string_view name;
  ModelShape model;
  Index vocab_size, context;
};
const std::array<NamedShape, 2>& named_shapes() {
  static const std::array<NamedShape, 2> shapes = {{
      {"gpt2",  // GPT-2 124M
       {.model_type = "gpt2",
        .hidden_size = 768,
        .num_hidden_layers = 12,
        .num_attention_heads = 12},
       50257,
       1024},
      {"llama-15m",  // Llama form, 15M
       {.model_type = "llama",
        .hidden_size = 288,
        .intermediate_size = 768,
        .num_hidden_layers = 6,
        .num_attention_heads = 6},
       32000,
       256},
  }};
  return shapes;
}

const NamedShape& find_shape(const std::string& name) {
  std::string known;
  for (const NamedShape& shape : named_shapes()) {
    if (shape.name == name) return shape;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", shape.name);
  }
  fail("--shape {}: no such shape; {} are known, or leave it out and give model.* keys", name,
       known);
}

struct PhaseTime {
  std::string_view name;
  double forward = 0, backward = 0, update = 0;  // seconds
  double total() const { return forward + backward + update; }
};

/// A profile's entries by what they are for.
std::vector<PhaseTime> phases_of(const std::vector<Profile::Entry>& entries) {
  struct Phase {
    std::string_view name;
    std::vector<std::string_view> marks;
  };
  static const std::array<Phase, 7> kPhases = {{
      {"embedding", {"embedding"}},
      {"attention",
       {"attention", "gated_attention", "sparse_attention", "sort", "grouped attention",
        "local band"}},
      {"routing", {"route", "membership", "potentials"}},
      {"linear", {"linear", "matmul"}},
      {"loss", {"linear_cross_entropy"}},
      {"optimiser", {"optimiser"}},
      {"element-wise, norms", {}},  // everything else
  }};
  constexpr std::string_view kBackward = " backward";
  std::vector<PhaseTime> times;
  for (const Phase& phase : kPhases) times.push_back({.name = phase.name});
  for (const Profile::Entry& entry : entries) {
    std::string_view mark = entry.name;
    const bool backward = mark.ends_with(kBackward);
    if (backward) mark.remove_suffix(kBackward.size());
    const auto phase = std::ranges::find_if(kPhases, [&](const Phase& p) {
      return p.marks.empty() || std::ranges::find(p.marks, mark) != p.marks.end();
    });
    PhaseTime& time = times[static_cast<std::size_t>(phase - kPhases.begin())];
    (mark == "optimiser" ? time.update : backward ? time.backward : time.forward) += entry.seconds;
  }
  return times;
}

std::string cell(double seconds) {
  return seconds > 0 ? fmt::format("{:.2f}", 1e3 * seconds) : "-";
}

/// The timed passes of one run.
struct Timing {
  std::vector<double> seconds;
  double fastest = 0, median = 0;
  std::uint64_t multiply_adds = 0;         // of one pass
  std::vector<Profile::Entry> of_fastest;  // its profile
};

Timing time_passes(Session& session, bool forward_only, int repeats) {
  Timing timing;
  const auto timed_pass = [&] {
    const double start = now();
    if (forward_only)
      session.forward();
    else
      session.step();
    return now() - start;
  };
  spdlog::info("warm-up");
  timed_pass();  // fills the pool of buffers
  for (int i = 1; i <= repeats; ++i) {
    const std::uint64_t before = multiply_adds();
    const Profile profile;
    timing.seconds.push_back(timed_pass());
    timing.multiply_adds = multiply_adds() - before;
    if (i == 1 || timing.seconds.back() < timing.fastest) {
      timing.fastest = timing.seconds.back();
      timing.of_fastest = profile.entries();
    }
    spdlog::info("{}/{}  {:.3f} s", i, repeats, timing.seconds.back());
  }
  timing.median = median(timing.seconds);
  return timing;
}

}  // namespace

int run_bench_step(Arguments arguments) {
  std::string recipe, json, shape_name;
  int repeats = 3;
  Index vocab_size = 50257;
  bool forward_only = false;
  CLI::App app(
      "Times training steps on random weights and random ids: tokens/s, GFLOP/s, memory, and the "
      "time of each phase. Needs no checkpoint and no text, and writes nothing but --json. The "
      "recipe says the shape (model.*), the method, focus.*, data.context, batch and accumulate, "
      "optim.*, seed and threads; base, tokenizer, texts and out are not read. GFLOP/s count two "
      "operations for each multiply-add of products and attention tiles. The peak is measured at "
      "the start: multiply-adds that stay in registers, on as many threads.",
      "focus bench-step");
  add_recipe_arguments(app, recipe);
  app.add_option("--shape", shape_name,
                 "model.*, vocabulary and data.context to start from: gpt2 (124M) or llama-15m");
  app.add_option("--vocab-size", vocab_size, "ids of the model (default: the shape's, or 50257)");
  app.add_option("--repeats", repeats, "timed passes, after one that warms up (default 3)");
  app.add_flag("--forward-only", forward_only, "forward and loss, without a graph");
  app.add_option("--json", json, "write the figures to this file too");
  parse_arguments(app, arguments);

  RunConfig config;
  if (!shape_name.empty()) {
    const NamedShape& shape = find_shape(shape_name);
    config.model = shape.model;
    config.data.context = shape.context;
    if (app.count("--vocab-size") == 0) vocab_size = shape.vocab_size;
  }
  read_recipe_arguments(app, recipe, config);
  check(repeats > 0, "--repeats must be positive, not {}", repeats);
  check(vocab_size > 0 && vocab_size <= 1 << 24, "--vocab-size must be from 1 to {}, not {}",
        1 << 24, vocab_size);
  check(config.method != Method::two_phase,
        "method two_phase has steps of two kinds: time method retrofit, then full with attention "
        "focus");
  set_threads(config.threads);

  const double peak = measured_peak_gflops();
  Session session =
      random_session(config, config.model.to_model_config(vocab_size, config.data.context));
  reset_pool_peak();

  const Timing timing = time_passes(session, forward_only, repeats);

  const ModelConfig& model = session.model().decoder->config();
  const AttentionMode mode = session.mode_at(repeats);
  const std::string routing =
      mode.kind == AttentionMode::Kind::dense
          ? ""
          : fmt::format(", {} balance",
                        enum_names(mode.balance)[static_cast<std::size_t>(mode.balance)]);
  const std::string method(enum_names(config.method)[static_cast<std::size_t>(config.method)]);
  const auto tokens =
      static_cast<double>(config.data.batch * config.data.accumulate * config.data.context);
  const double gflops = 2 * static_cast<double>(timing.multiply_adds) / timing.fastest / 1e9;
  const std::vector<PhaseTime> phases = phases_of(timing.of_fastest);

  fmt::print("{}\n", machine_line());
  fmt::print("{}{}: {} layers, width {}, {} heads, {} ids; {} parameters, {} trained\n",
             shape_name.empty() ? "" : shape_name + ", ", model.model_type, model.num_hidden_layers,
             model.hidden_size, model.num_attention_heads, model.vocab_size,
             format_count(static_cast<double>(session.count_all())),
             format_count(static_cast<double>(session.count_trainable())));
  fmt::print("{}, attention {}{}; {} x {} x {} tokens (batch, accumulate, context)\n\n",
             forward_only ? "forward only" : method, mode.name(), routing, config.data.batch,
             config.data.accumulate, config.data.context);
  fmt::print("ms a pass        min {:.2f}  median {:.2f}  of {}\n", 1e3 * timing.fastest,
             1e3 * timing.median, repeats);
  fmt::print("tokens/s         best {:.1f}  median {:.1f}\n", tokens / timing.fastest,
             tokens / timing.median);
  fmt::print("GFLOP/s          {:.1f}, {:.1f} % of the measured peak of {:.1f}\n", gflops,
             100 * gflops / peak, peak);
  fmt::print("memory           {} resident at most, {} in tensors at most\n\n",
             format_bytes(static_cast<double>(peak_resident_bytes())),
             format_bytes(static_cast<double>(pool_stats().peak)));
  fmt::print("{:<20} {:>11} {:>12} {:>10} {:>7}\n", "phase (fastest)", "forward ms", "backward ms",
             "all ms", "share");
  Json phase_list = Json::array(), marks = Json::array();
  for (const PhaseTime& phase : phases) {
    fmt::print("{:<20} {:>11} {:>12} {:>10} {:>6.1f}%\n", phase.name, cell(phase.forward),
               cell(phase.backward), cell(phase.total()), 100 * phase.total() / timing.fastest);
    phase_list.push_back({{"phase", phase.name},
                          {"forward_seconds", phase.forward},
                          {"backward_seconds", phase.backward},
                          {"update_seconds", phase.update}});
  }
  if (!forward_only) fmt::print("\nthe loss computes its gradient in its forward pass\n");
  for (const Profile::Entry& entry : timing.of_fastest)
    marks.push_back({{"name", entry.name}, {"seconds", entry.seconds}, {"calls", entry.calls}});
  write_json(json, {{"machine", machine_json()},
                    {"shape", shape_name},
                    {"model", Json::parse(write_model_config(model))},
                    {"parameters", session.count_all()},
                    {"trained", session.count_trainable()},
                    {"method", method},
                    {"attention", mode.name()},
                    {"balance", enum_names(mode.balance)[static_cast<std::size_t>(mode.balance)]},
                    {"pass", forward_only ? "forward" : "step"},
                    {"batch", config.data.batch},
                    {"accumulate", config.data.accumulate},
                    {"context", config.data.context},
                    {"seconds", timing.seconds},
                    {"seconds_min", timing.fastest},
                    {"seconds_median", timing.median},
                    {"tokens_per_second", tokens / timing.fastest},
                    {"tokens_per_second_median", tokens / timing.median},
                    {"multiply_adds", timing.multiply_adds},
                    {"gflops", gflops},
                    {"peak_gflops", peak},
                    {"share_of_peak", gflops / peak},
                    {"peak_resident_bytes", peak_resident_bytes()},
                    {"peak_tensor_bytes", pool_stats().peak},
                    {"phases", phase_list},
                    {"marks", marks}});
  return 0;
}

}  // namespace focus
