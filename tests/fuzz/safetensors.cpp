#include "data/tensors/safetensors.h"

#include "tests/fuzz/harness.h"

/// A whole safetensors file: its header is held to the format, then every tensor is read.
void focus::fuzz::try_input(std::string_view input) {
  const MemoryFile on_disk(input);
  run_loader(input.size(), [&] {
    const SafetensorsFile file(on_disk.path());
    std::vector<std::byte> bytes;
    std::size_t total = 0;
    for (const TensorInfo& info : file.tensors()) {
      file.read_raw(info.name, bytes);
      total += bytes.size();
      // What the file says of itself is refused tensor by tensor, the rest is read.
      run_loader(input.size(), [&] { file.read(info.name); });
    }
    if (total > input.size()) report("the tensors hold more bytes than the file");
  });
}
