#include "data/tokens/token_file.h"

#include "tests/fuzz/harness.h"

/// A token file. Its checksum keeps changed bytes from coming far, so it is opened without, too.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace focus;
  const fuzz::MemoryFile input({data, size});
  for (const bool verify : {true, false}) {
    fuzz::run_loader(size, [&] {
      const TokenFile file = TokenFile::open(input.path(), verify);
      std::vector<std::int32_t> ids(static_cast<std::size_t>(file.size()));
      file.copy(0, ids);
      Index end = 0;
      for (Index i = 0; i < file.num_documents(); ++i) {
        const TokenRange range = file.document(i);
        if (range.begin != end || range.end < range.begin || range.end > file.size()) {
          fuzz::report("documents that do not follow each other");
        }
        end = range.end;
      }
      if (file.vocab_size() <= 0) fuzz::report("no vocabulary");
      const TokenSplit split = split_by_document(file, 0.5, 1);
      if (split.train.size() + split.valid.size() != file.size()) fuzz::report("a lossy split");
    });
  }
  return 0;
}
