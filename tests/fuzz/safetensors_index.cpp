#include <fstream>

#include "data/tensors/safetensors.h"
#include "tests/fuzz/harness.h"
#include "tests/support/temp_folder.h"

/// model.safetensors.index.json beside two small shards, a.safetensors with tensors w and x,
/// b.safetensors with y.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace focus;
  static const TempFolder folder;
  static const bool prepared = [] {
    write_safetensors(folder / "a.safetensors", {{"w", Tensor({2})}, {"x", Tensor({1, 3})}});
    write_safetensors(folder / "b.safetensors", {{"y", Tensor({1})}});
    return true;
  }();
  static_cast<void>(prepared);
  std::ofstream(folder / "model.safetensors.index.json", std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  fuzz::run_loader(size, [&] {
    const auto source = open_safetensors_folder(folder.path());
    for (const TensorInfo& info : source->tensors()) source->read(info.name);
  });
  return 0;
}
