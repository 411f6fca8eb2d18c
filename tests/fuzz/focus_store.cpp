#include <algorithm>
#include <charconv>

#include "focus/method/focus_files.h"
#include "tests/fuzz/harness.h"
#include "tests/support/temp_folder.h"

namespace {

using namespace focus;

/// Attributes of /focus by lines of `name=number`, and of its first layer by `name:number`; a line
/// `name 2 3` is a tensor of it.
void write_lines(StoreWriter& store, const std::string& lines) {
  for (const std::string& line : fuzz::lines_of(lines)) {
    const std::size_t sign = line.find_first_of("=: ");
    if (sign == std::string::npos) continue;
    const std::string name = line.substr(0, sign);
    std::vector<std::int64_t> numbers;
    for (const char* at = line.data() + sign; at < line.data() + line.size() && *at != '\0';) {
      const auto [next, error] =
          std::from_chars(at + 1, line.data() + line.size(), numbers.emplace_back(0));
      at = next;
      if (error != std::errc() || *at != ' ') break;
    }
    if (line[sign] != ' ') {
      store.attribute(line[sign] == '=' ? "/focus" : layer_path(0), name, numbers.at(0));
      continue;
    }
    for (std::int64_t& size : numbers) size = std::clamp<std::int64_t>(size, 0, 9);
    if (numbers.size() > 3) numbers.resize(3);
    store.tensor(layer_path(0) + "/" + name, Tensor(Shape(std::span<const Index>(numbers))));
  }
}

}  // namespace

/// A store with a Focus: the settings in /focus/config.yaml and, after a NUL byte, lines of
/// attributes and tensors.
void focus::fuzz::try_input(std::string_view input) {
  static const TempFolder folder;
  const std::filesystem::path path = folder / "focus.h5";
  const auto [config, lines] = split_input<2>(input);
  try {
    StoreWriter store(path, "adapter");
    store.attribute("/focus", "base_fingerprint", std::string("a"));
    store.text("/focus/config.yaml", config);
    write_lines(store, lines);
    store.commit();
  } catch (const std::exception&) {  // an invalid or repeated name
    return;
  }
  const auto load = [&] {
    const SavedFocus saved = open_focus(std::filesystem::path(path));
    for (const LayerTensor& tensor : grouping_kind(saved.config).tensors(saved.config, saved.shape))
      saved.tensor(0, std::string(tensor.name), tensor.shape);
  };
  run_loader(std::filesystem::file_size(path), load, {path.string()});
}
