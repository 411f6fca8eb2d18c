#include "data/tensors/safetensors.h"

#include "tests/fuzz/harness.h"

/// A whole safetensors file: its header is held to the format, then every tensor is read.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace focus;
  const fuzz::MemoryFile input({data, size});
  fuzz::run_loader(size, [&] {
    const SafetensorsFile file(input.path());
    std::vector<std::byte> bytes;
    std::size_t total = 0;
    for (const TensorInfo& info : file.tensors()) {
      file.read_raw(info.name, bytes);
      total += bytes.size();
      // What the file says of itself is refused tensor by tensor, the rest is read.
      fuzz::run_loader(size, [&] { file.read(info.name); });
    }
    if (total > size) fuzz::report("the tensors hold more bytes than the file");
  });
  return 0;
}
