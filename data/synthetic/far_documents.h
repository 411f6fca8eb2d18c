#pragma once

#include "autograd/base/random.h"
#include "data/synthetic/asked_document.h"

// One document of each kind of far_corpus.h, its words drawn from `rng`.
namespace focus::corpus {

struct FarDraw {
  std::int64_t keys = 1;
  std::size_t distance = 0;  // bytes of filler, at least
  std::int64_t asked = 1;    // times that each key of recall is asked
};

AskedDocument recall_document(Rng& rng, const FarDraw& draw);
AskedDocument copy_document(Rng& rng, const FarDraw& draw);
AskedDocument lookup_document(Rng& rng, const FarDraw& draw);

/// Sentences of the tales that tell nothing, at least so many bytes, then a line break; a line
/// break alone where none are wanted.
std::string filler(Rng& rng, std::size_t bytes);

/// Appends what answers, and marks it.
void add_answer(AskedDocument& document, std::string_view answer, std::size_t source);

}  // namespace focus::corpus
