#include "layers/model_config.h"

#include "tests/fuzz/harness.h"

/// A config.json. What is accepted must survive being written and read again.
void focus::fuzz::try_input(std::string_view input) {
  const std::string text(input);
  ModelConfig config;
  if (!run_loader(input.size(), [&] { config = parse_model_config(text, "config.json"); })) return;
  const std::string written = write_model_config(config);
  if (write_model_config(parse_model_config(written, "written")) != written) {
    report("a config reads back as another one: " + written);
  }
}
