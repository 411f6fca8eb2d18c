#include "data/settings/config.h"

#include "focus/training/run_config.h"
#include "tests/fuzz/harness.h"

/// A run's config and, after a NUL byte, lines of overrides. What is accepted must survive being
/// written and read again.
void focus::fuzz::try_input(std::string_view input) {
  const auto parts = split_input<2>(input);
  const std::vector<std::string> overrides = lines_of(parts[1]);
  RunConfig config, again;
  const auto load = [&] { read_config_text(parts[0], "config.yaml", overrides, config); };
  // yaml-cpp keeps some 200 bytes for each of a bracket until it is closed.
  if (!run_loader(4 * input.size(), load, {"config.yaml:", "override "})) return;
  const std::string written = dump_config(config);
  read_config_text(written, "written", {}, again);
  if (dump_config(again) != written) report("a config reads back as another one: " + written);
}
