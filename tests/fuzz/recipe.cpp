#include "data/settings/recipe.h"

#include <algorithm>

#include "focus/train/run_config.h"
#include "tests/fuzz/harness.h"

namespace {

using namespace focus;

/// Reads into a Config. What is accepted must survive being written and read again.
template <class Config>
void read(const std::string& text, const std::vector<std::string>& overrides, std::size_t size) {
  Config config;
  const auto load = [&] { read_recipe_text(text, "recipe.yaml", overrides, config); };
  if (!fuzz::run_loader(size, load, {"recipe.yaml:", "override "})) return;
  const std::string written = dump_recipe(config);
  Config again;
  read_recipe_text(written, "written", {}, again);
  if (dump_recipe(again) != written) fuzz::report("a recipe reads back as another one: " + written);
}

}  // namespace

/// A recipe and, after a NUL byte, lines of overrides; read as a run's and as the Focus settings
/// that a store holds.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto [text, lines] = fuzz::split_input<2>({data, size});
  std::vector<std::string> overrides;
  for (std::size_t begin = 0; begin < lines.size();) {
    const std::size_t end = std::min(lines.find('\n', begin), lines.size());
    overrides.push_back(lines.substr(begin, end - begin));
    begin = end + 1;
  }
  read<RunConfig>(text, overrides, size);
  read<FocusConfig>(text, overrides, size);
  return 0;
}
