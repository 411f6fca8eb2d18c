#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "autograd/base/random.h"
#include "data/synthetic/asked_document.h"

// One document of each kind of far_corpus.h, its words drawn from `rng`.
namespace focus::corpus {

/// The sentences between facts and questions: those of the tales without facts, or a
/// passage of a text (the haystack).
class Filler {
 public:
  Filler() = default;
  /// Throws std::invalid_argument where the text has no paragraph.
  explicit Filler(std::string haystack);

  /// At least so many bytes, then a line break; a line break alone where none are wanted. A passage
  /// begins with a paragraph, ends after a word and continues at the text's beginning after its
  /// end.
  std::string operator()(Rng& rng, std::size_t bytes) const;

 private:
  std::string passage(Rng& rng, std::size_t bytes) const;

  std::string haystack_;
  std::vector<std::size_t> paragraphs_;  // where they begin
};

struct FarDraw {
  const Filler& filler;
  std::int64_t keys = 1;
  std::size_t distance = 0;  // bytes of filler, at least
  std::int64_t asked = 1;    // times that each key of recall is asked
};

AskedDocument recall_document(Rng& rng, const FarDraw& draw);
AskedDocument copy_document(Rng& rng, const FarDraw& draw);
AskedDocument lookup_document(Rng& rng, const FarDraw& draw);
AskedDocument chain_document(Rng& rng, const FarDraw& draw);

}  // namespace focus::corpus
