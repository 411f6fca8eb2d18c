#include "data/tensors/safetensors.h"
#include "tests/fuzz/harness.h"
#include "tests/support/temp_folder.h"

/// model.safetensors.index.json beside two small shards, a.safetensors with tensors w and x,
/// b.safetensors with y.
void focus::fuzz::try_input(std::string_view input) {
  static const TempFolder folder;
  static const bool prepared = [] {
    write_safetensors(folder / "a.safetensors", {{"w", Tensor({2})}, {"x", Tensor({1, 3})}});
    write_safetensors(folder / "b.safetensors", {{"y", Tensor({1})}});
    return true;
  }();
  static_cast<void>(prepared);
  write_text(folder / "model.safetensors.index.json", std::string(input));
  run_loader(input.size(), [&] {
    const auto source = open_safetensors_folder(folder.path());
    for (const TensorInfo& info : source->tensors()) source->read(info.name);
  });
}
