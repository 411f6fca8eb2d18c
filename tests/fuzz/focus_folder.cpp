#include <algorithm>

#include "focus/method/focus_files.h"
#include "tests/fuzz/harness.h"
#include "tests/support/temp_folder.h"

/// The folder of a Focus: its focus_config.json and, after a NUL byte, its safetensors. All tensors
/// of the first layers are read.
void focus::fuzz::try_input(std::string_view input) {
  static const TempFolder folder;
  const auto [config, weights] = split_input<2>(input);
  write_text(folder / kFocusConfigFile, config);
  write_text(folder / kFocusWeightsFile, weights);
  const auto load = [&] {
    const SavedFocus saved = open_focus_folder(folder.path());
    if (static_cast<Index>(saved.updates.size()) != saved.shape.num_layers)
      report("layers without carried updates");
    for (Index layer = 0; layer < std::min<Index>(saved.shape.num_layers, 3); ++layer)
      for (const LayerTensor& tensor :
           grouping_kind(saved.config).tensors(saved.config, saved.shape))
        saved.tensor(layer, std::string(tensor.name), tensor.shape);
  };
  run_loader(input.size(), load, {folder.path().string()});
}
