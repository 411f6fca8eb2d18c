#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "autograd/base/random.h"

namespace focus {

/// A built-in text to try things on without a download: short invented tales in plain ASCII
/// English. Each opens with two or three people whose names, towns, belongings, hiding places,
/// house numbers and years are invented, needs them all the way down, and ends with questions
/// about them. The grammar is quickly learnt; beyond it only attention to far earlier text helps.
struct CorpusOptions {
  std::uint64_t seed = 1;
  std::int64_t documents = 1000;
  std::size_t min_bytes = 1500;  // of a document
  std::size_t max_bytes = 4000;  // at least 3500, and 1500 more than min_bytes
  std::string separator = "\n\n";
};

struct CorpusDocument {
  std::string text;                // ends with a line break
  std::vector<std::string> facts;  // told in the opening, needed again at the end
};

/// The same documents for the same options on every platform; the first n of a longer corpus are
/// the shorter corpus. Throws std::invalid_argument for sizes that do not fit together.
std::vector<CorpusDocument> generate_documents(const CorpusOptions& options);

/// The documents' texts with the separator between them.
std::string generate_corpus(const CorpusOptions& options);

}  // namespace focus
