#include <string_view>

#include "data/files/utf8.h"
#include "data/text/unpack.h"
#include "focus/evaluation/scores/task_readers.h"
#include "tests/fuzz/harness.h"

/// A benchmark's file: each reader on the same bytes.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace focus;
  const fuzz::MemoryFile input({data, size});
  const std::string name = input.path().string();
  // What is packed is another library's, and takes what its buffers take.
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (!packing_of(bytes).empty()) return 0;
  for (const TaskKind& kind : task_kinds()) {
    const auto load = [&] {
      for (const TaskItem& item : kind.read(input.path())) {
        if (!item.where.starts_with(name)) fuzz::report("an item of nowhere");
        if (item.right >= item.choices.size()) fuzz::report("a right choice that is not there");
        if (item.lengths.size() != item.choices.size()) fuzz::report("choices without lengths");
        if (!is_valid_utf8(item.context)) fuzz::report("a context that is not UTF-8");
        for (const std::string& choice : item.choices)
          if (!is_valid_utf8(choice)) fuzz::report("a choice that is not UTF-8");
      }
    };
    fuzz::run_loader(size, load, {name});
  }
  return 0;
}
