#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "apps/command.h"
#include "autograd/base/check.h"
#include "data/files/durable_file.h"
#include "data/files/input_file.h"
#include "data/tensors/safetensors.h"
#include "data/tensors/store.h"

namespace focus::app {
namespace fs = std::filesystem;
namespace {

/// The keys with which the figures of the commands begin.
bool are_figures(const std::string& bytes) {
  constexpr std::string_view kBeginnings[][2] = {
      {"model", "adapter"}, {"store", "model_type"}, {"folder", "kind"},     {"file", "kind"},
      {"bytes", "tokens"},  {"finished", "step"},    {"trainable", "frozen"}};
  const auto json = nlohmann::ordered_json::parse(bytes, nullptr, false);
  if (!json.is_object() || json.size() < 2) return false;
  const auto first = json.begin(), second = std::next(first);
  if (first.key() == "machine") return first->is_object() && first->contains("processor");
  return std::ranges::any_of(kBeginnings, [&](const auto& keys) {
    return keys[0] == first.key() && keys[1] == second.key();
  });
}

bool is_drawn(std::string_view bytes) {
  return bytes.starts_with("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n") &&
         bytes.find("var(--page)") != std::string_view::npos;
}

template <class Read>
bool can_be_read(const fs::path& path, const Read& read) {
  constexpr std::uintmax_t kMostBytes = 1 << 30;  // more is no page and are no figures
  try {
    return fs::file_size(path) <= kMostBytes && read();
  } catch (const std::exception&) {
    return false;
  }
}

bool is_same(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return fs::equivalent(a, b, error) && !error;
}

/// Whether `path` is there and lies in the folder, however deep.
bool lies_in(const fs::path& path, const fs::path& folder) {
  for (fs::path above = fs::absolute(path).lexically_normal().parent_path();;
       above = above.parent_path()) {
    if (is_same(above, folder)) return true;
    if (above == above.parent_path()) return false;
  }
}

/// Writes nothing that stays.
void prove_writable(const OutputPlace& output) {
  if (!output.is_folder) {
    const DurableFile file(output.path);
    FileWriter(file).close();
    return;
  }
  fs::path there = fs::absolute(output.path).lexically_normal();
  while (!is_there(there)) there = there.parent_path();
  // A tokenizer.json may be named in the place of its folder; the command asks before it goes.
  if (there.extension() == ".json" && fs::is_regular_file(there)) there = there.parent_path();
  if (!fs::is_directory(there)) fail_writing("write", output.path, ENOTDIR);
  if (access(there.c_str(), W_OK | X_OK) != 0) fail_writing("write", output.path, errno);
}

void refuse_input(const OutputPlace& output, const std::string& input, bool is_own) {
  std::error_code error;
  const bool same = is_same(output.path, input);
  const bool inside =
      !same && !is_own && fs::is_directory(input, error) && !error && lies_in(output.path, input);
  if (same || inside)
    fail("{} {}: it {} {}, which this command reads; choose another name", output.option,
         output.path.string(), same ? "is" : "is in", input);
}

/// Whether what is there is what the program writes there, by its contents: the figures of --json,
/// a page, the logits of `focus logits`.
bool is_own_output(const OutputPlace& output) {
  const fs::path& path = output.path;
  const auto figures = [&] { return are_figures(read_file(path)); };
  const auto drawn = [&] { return is_drawn(read_file(path)); };
  const auto logits = [&] { return SafetensorsFile(path).find("logits") != nullptr; };
  if (output.option == "--json") return can_be_read(path, figures);
  return can_be_read(path, drawn) || (output.option == "--out" && can_be_read(path, logits));
}

bool is_checkpoint(const fs::path& path) {
  try {
    return path.extension() == ".h5" && !StoreReader(path).kind().empty();
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

void check_outputs(std::span<const OutputPlace> outputs, std::span<const std::string> inputs,
                   bool overwrite) {
  for (const OutputPlace& output : outputs) {
    prove_writable(output);
    for (const OutputPlace& other : outputs)
      if (&other != &output && other.path == output.path)
        fail("{} and {}: both are {}; give each a different name", other.option, output.option,
             output.path.string());
    if (output.is_folder || !is_there(output.path)) continue;
    const bool is_own = is_own_output(output);
    for (const std::string& input : inputs)
      for (const std::size_t begin : {std::size_t{0}, input.find('=') + 1})  // key=file
        refuse_input(output, input.substr(begin), is_own);
    if (!is_own && !overwrite)
      fail("{} {}: exists already and is {}; choose another name, or add --overwrite",
           output.option, output.path.string(),
           is_checkpoint(output.path) ? "a checkpoint file that focus wrote"
                                      : "not a known output of focus");
  }
}

}  // namespace focus::app
