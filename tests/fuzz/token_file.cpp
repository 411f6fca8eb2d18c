#include "data/tokens/token_file.h"

#include "tests/fuzz/harness.h"

/// A token file. Its checksum keeps changed bytes from coming far, so it is opened without, too.
void focus::fuzz::try_input(std::string_view input) {
  const MemoryFile on_disk(input);
  for (const bool verify : {true, false}) {
    run_loader(input.size(), [&] {
      const TokenFile file = TokenFile::open(on_disk.path(), verify);
      std::vector<std::int32_t> ids(file.size());
      file.copy(0, ids);
      Index end = 0;
      for (Index i = 0; i < file.num_documents(); ++i) {
        const TokenRange range = file.document(i);
        if (range.begin != end || range.end < range.begin || range.end > file.size()) {
          report("documents that do not follow each other");
        }
        end = range.end;
      }
      if (file.vocab_size() <= 0) report("no vocabulary");
      const TokenSplit split = split_by_document(file, 0.5, 1);
      if (split.train.size() + split.valid.size() != file.size()) report("a lossy split");
    });
  }
}
