#include "data/settings/config.h"

#include <functional>

#include "focus/training/run_config.h"
#include "tests/fuzz/harness.h"

namespace {

using namespace focus;

/// What FocusConfig has, without the table of groupings, which would bring the kernels along.
struct FocusSections {
  int num_groups = 4;
  Training training = Training::soft;
  TokenSettings tokens;
  KeySettings keys;
  SummarySettings summary;
  AblationSettings ablations;
  void visit(auto&& f) {
    f("num_groups", num_groups);
    f("training", training);
    f("tokens", tokens);
    f("keys", keys);
    f("summary", summary);
    f("ablations", ablations);
  }
};

/// Sections of a run's config: settings of every type, without the table of mechanisms.
struct Config {
  Method method = Method::retrofit;
  Precision precision = Precision::float32;
  std::string base;
  std::int64_t steps = 500;
  ModelShape model;
  DataConfig data;
  FocusSections focus;
  TwoPhaseConfig two_phase;
  LoraConfig lora;
  OptimConfig optim;
  void visit(auto&& f) {
    f("method", method);
    f("precision", precision);
    f("base", base);
    f("steps", steps, "", Range{1, 1e12});
    f("model", model);
    f("data", data);
    f("focus", focus);
    f("two_phase", two_phase);
    f("lora", lora);
    f("optim", optim);
  }
};

/// Reads by `load`. What is accepted must survive being written and read again.
template <class Config>
void read(std::size_t size, const std::function<void(Config&)>& load_into) {
  Config config;
  const auto load = [&] { load_into(config); };
  // yaml-cpp keeps some 200 bytes for each of a bracket until it is closed.
  if (!fuzz::run_loader(4 * size, load, {"config.yaml:", "override "})) return;
  const std::string written = dump_config(config);
  Config again;
  read_config_text(written, "written", {}, again);
  if (dump_config(again) != written) fuzz::report("a config reads back as another one: " + written);
}

}  // namespace

/// A config and, after a NUL byte, lines of overrides; read as a run's and as the
/// settings that a checkpoint file holds.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto parts = fuzz::split_input<2>({data, size});
  const std::string text(parts[0]);
  const std::vector<std::string> overrides = fuzz::lines_of(parts[1]);
  read<Config>(size,
               [&](Config& config) { read_config_text(text, "config.yaml", overrides, config); });
  read<FocusSections>(
      size, [&](FocusSections& settings) { read_config_text(text, "config.yaml", {}, settings); });
  return 0;
}
