#include "layers/model_config.h"

#include "tests/fuzz/harness.h"

/// A config.json. What is accepted must survive being written and read again.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace focus;
  const std::string text(reinterpret_cast<const char*>(data), size);
  ModelConfig config;
  if (!fuzz::run_loader(size, [&] { config = parse_model_config(text, "config.json"); })) return 0;
  const std::string written = write_model_config(config);
  if (write_model_config(parse_model_config(written, "written")) != written) {
    fuzz::report("a config reads back as another one: " + written);
  }
  return 0;
}
