#include "focus/adapters/lora/lora.h"
#include "tests/fuzz/harness.h"

/// An adapter_config.json of PEFT. What is accepted is fit to be used.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace focus;
  const std::string text(reinterpret_cast<const char*>(data), size);
  LoraConfig config;
  if (fuzz::run_loader(size, [&] { config = parse_peft_config(text, "adapter_config.json"); },
                       {"adapter_config.json"})) {
    config.validate();
    if (!(config.scaling() > 0)) fuzz::report("a scaling that is none");
  }
  return 0;
}
