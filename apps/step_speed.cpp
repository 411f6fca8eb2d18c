#include "focus/speed/step_speed.h"

#include <spdlog/spdlog.h>

#include "apps/command.h"
#include "apps/terminal/progress.h"
#include "autograd/base/check.h"
#include "autograd/base/memory.h"
#include "autograd/machine.h"

namespace focus::app {
namespace {

struct StepArguments {
  RunConfig config;
  std::string json, shape;
  int repeats = 3;
  Index vocab_size = 50257;
};

std::string cell(double seconds) {
  return seconds > 0 ? fmt::format("{:.2f}", 1e3 * seconds) : "-";
}

void print_steps(const MeasuredSteps& m) {
  const RunConfig& config = m.session.config();
  const ModelConfig& model = m.model();
  const std::string balance = m.mode.kind == AttentionKind::dense
                                  ? ""
                                  : fmt::format(", {} balance", value_text(*m.mode.balance));
  fmt::print("{}\n", this_machine().line());
  fmt::print(
      "{}{}: {} layers, hidden size {}, {} heads, vocabulary of {}; {} parameters, {} trainable\n",
      m.shape.empty() ? "" : m.shape + ", ", model.model_type, model.num_hidden_layers,
      model.hidden_size, model.num_attention_heads, model.vocab_size,
      format_count(static_cast<double>(m.session.count_all())),
      format_count(static_cast<double>(m.session.count_trainable())));
  fmt::print("{}, attention {}{}; {} x {} x {} tokens (batch, accumulate, context)\n\n",
             value_text(config.method), m.mode.name(), balance, config.data.batch,
             config.data.gradient_accumulation_steps, config.data.context);
  fmt::print("ms per step      min {:.2f}  median {:.2f}  of {}\n", 1e3 * m.speed.fastest,
             1e3 * m.speed.median, m.speed.seconds.size());
  fmt::print("tokens/s         best {:.1f}  median {:.1f}\n", m.tokens() / m.speed.fastest,
             m.tokens() / m.speed.median);
  fmt::print("GFLOP/s          {:.1f}, {:.1f} % of the measured peak of {:.1f}\n", m.gflops(),
             100 * m.gflops() / m.peak_gflops, m.peak_gflops);
  fmt::print("memory           {} resident at peak, {} in tensors at peak\n\n",
             format_bytes(static_cast<double>(peak_resident_bytes())),
             format_bytes(static_cast<double>(pool_stats().peak)));
  fmt::print("{:<20} {:>11} {:>12} {:>10} {:>7}\n", "phase (fastest)", "forward ms", "backward ms",
             "all ms", "share");
  for (const PhaseTime& phase : m.phases)
    fmt::print("{:<20} {:>11} {:>12} {:>10} {:>6.1f}%\n", phase.name, cell(phase.forward),
               cell(phase.backward), cell(phase.total()), 100 * phase.total() / m.speed.fastest);
  fmt::print("\nthe loss computes its gradient in its forward pass\n");
}

}  // namespace

int run_step_speed(Arguments arguments) {
  StepArguments o;
  std::string config_file;
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
  app.add_option("--shape", o.shape,
                 "preset for model.*, vocabulary and data.context: gpt2 (124M) or llama-15m");
  app.add_option("--vocab-size", o.vocab_size, "vocabulary size (default: the preset's, or 50257)");
  app.add_option("--repeats", o.repeats, "timed steps after one warm-up step (default 3)");
  app.add_option("--json", o.json, "also write the figures to this JSON file");
  parse_arguments(app, arguments);

  RunConfig& config = o.config;
  if (!o.shape.empty()) {
    const NamedShape& shape = find_shape(o.shape);
    config.model = shape.model;
    config.data.context = shape.context;
    if (app.count("--vocab-size") == 0) o.vocab_size = shape.vocab_size;
  }
  read_config_arguments(app, config_file, config);
  check(o.repeats > 0, "--repeats must be positive, not {}", o.repeats);
  check(o.vocab_size > 0 && o.vocab_size <= 1 << 24, "--vocab-size must be from 1 to {}, not {}",
        1 << 24, o.vocab_size);
  check(config.method != Method::two_phase,
        "method two_phase has two kinds of steps: time method retrofit, then full with attention "
        "focus");
  set_threads(config.threads);

  const double peak = measured_peak_gflops();
  Session session =
      random_session(config, config.model.to_model_config(o.vocab_size, config.data.context));
  reset_pool_peak();
  const auto report = [&](int step_number, double seconds) {
    if (step_number == 0)
      spdlog::info("warm-up");
    else
      spdlog::info("{}/{}  {:.3f} s", step_number, o.repeats, seconds);
  };
  const MeasuredSteps measured{.session = session,
                               .speed = time_steps(session, o.repeats, report),
                               .shape = o.shape,
                               .peak_gflops = peak};
  print_steps(measured);
  auto figures = nlohmann::ordered_json{{"machine", machine_json()}};
  figures.update(to_json(measured));
  write_json(o.json, figures);
  return 0;
}

}  // namespace focus::app
