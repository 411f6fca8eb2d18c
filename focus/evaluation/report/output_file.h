#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace focus {

/// A place that a command is going to write.
struct OutputPlace {
  std::string option;  // that names it: "--json"
  std::filesystem::path path;
  bool is_folder = false;  // whose files are written, and which is made where it is missing
};

/// For before the work, so that nothing is lost by a wrong name: throws std::runtime_error, one
/// line, where one of the outputs cannot be written, two are the same file, one is an input (or a
/// foreign file in an input that is a folder), or one is a file that is_own_output() does not know,
/// unless `overwrite`. `inputs` are words of the command line, or key=word: those that are no
/// file are passed over.
void check_outputs(std::span<const OutputPlace> outputs, std::span<const std::string> inputs,
                   bool overwrite);

/// Whether what is there is what the program writes there, by its contents: the figures of --json,
/// a page, a chart, the logits of `focus logits`.
bool is_own_output(const OutputPlace& output);

}  // namespace focus
