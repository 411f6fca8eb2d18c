#include "data/settings/config.h"

#include "focus/training/run_config.h"
#include "tests/fuzz/harness.h"

/// A run's config and, after a NUL byte, lines of overrides. What is accepted must survive being
/// written and read again.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace focus;
  const auto parts = fuzz::split_input<2>({data, size});
  const std::vector<std::string> overrides = fuzz::lines_of(parts[1]);
  RunConfig config, again;
  const auto load = [&] { read_config_text(parts[0], "config.yaml", overrides, config); };
  // yaml-cpp keeps some 200 bytes for each of a bracket until it is closed.
  if (!fuzz::run_loader(4 * size, load, {"config.yaml:", "override "})) return 0;
  const std::string written = dump_config(config);
  read_config_text(written, "written", {}, again);
  if (dump_config(again) != written) fuzz::report("a config reads back as another one: " + written);
  return 0;
}
