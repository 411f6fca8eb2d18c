#include "data/gguf/gguf.h"

#include "data/gguf/gguf_tokenizer.h"
#include "layers/gguf_settings.h"
#include "tests/fuzz/harness.h"

namespace focus {
namespace {

/// Every key by every reader: one that fits, and refusals by the others.
void read_keys(const GgufMetadata& metadata, std::size_t size) {
  for (const std::string& key : metadata.keys()) {
    int fitting = 0;
    const auto read = [&](auto&& reader) { fitting += fuzz::run_loader(size, reader); };
    read([&] { metadata.text(key); });
    read([&] { metadata.number(key); });
    read([&] { metadata.flag(key); });
    read([&] { metadata.texts(key); });
    read([&] { metadata.numbers(key); });
    read([&] { metadata.flags(key); });
    if (fitting > 1) fuzz::report("a value of two types");
    fuzz::run_loader(size, [&] { metadata.integer(key); });
    fuzz::run_loader(size, [&] { metadata.integers(key); });
  }
}

}  // namespace
}  // namespace focus

/// A whole GGUF file: container, keys, tensors, settings and tokenizer.
void focus::fuzz::try_input(std::string_view input) {
  const MemoryFile on_disk(input);
  std::optional<GgufSource> file;
  if (!run_loader(input.size(), [&] { file.emplace(on_disk.path()); })) return;
  read_keys(file->metadata(), input.size());
  std::size_t total = 0;
  run_loader(input.size(), [&] {
    for (const TensorInfo& info : file->tensors()) {
      std::vector<std::byte> bytes;
      file->read_raw(info.name, bytes);
      total += bytes.size();
      if (file->read(info.name).size() != info.size()) report("a tensor of another size");
    }
  });
  if (total > input.size()) report("the tensors hold more bytes than the file");
  ModelConfig config;
  if (run_loader(input.size(), [&] { config = read_gguf_config(*file); })) {
    // It must survive being written as a config.json and read again.
    const std::string written = write_model_config(config);
    if (write_model_config(parse_model_config(written, "written")) != written)
      report("settings read back as others: " + written);
  }
  run_loader(input.size(), [&] { tokenizer_of(file->metadata()); });
}
