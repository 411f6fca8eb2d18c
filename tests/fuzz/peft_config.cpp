#include "focus/adapters/lora/lora.h"
#include "tests/fuzz/harness.h"

/// An adapter_config.json of PEFT. What is accepted is fit to be used.
void focus::fuzz::try_input(std::string_view input) {
  const std::string text(input);
  LoraConfig config;
  if (run_loader(input.size(), [&] { config = parse_peft_config(text, "adapter_config.json"); },
                 {"adapter_config.json"})) {
    config.validate();
    if (!(config.scaling() > 0)) report("a scaling that is none");
  }
}
