#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/synthetic/asked_document.h"

namespace focus {

/// What a built-in document asks for.
enum class CorpusKind {
  tales,   // corpus.h
  recall,  // keys with a digit each, "b7 k3 z1"; then each key again, in another order (MQAR)
  copy,    // words of letters drawn at random; then the same words again
  lookup   // people and where they live, in sentences; then questions about half of them
};
constexpr auto enum_names(CorpusKind) {
  return std::array<std::string_view, 4>{"tales", "recall", "copy", "lookup"};
}

/// Built-in texts whose answers stand far before: between what is told and what is asked lie
/// sentences that have nothing to do with it.
struct FarCorpusOptions {
  CorpusKind kind = CorpusKind::tales;
  std::int64_t documents = 1000;
  std::uint64_t seed = 1;
  std::vector<std::int64_t> keys = {8};
  std::vector<std::int64_t> distance = {64};
  std::int64_t asked = 1;
  std::int64_t length = 0;
  double share = 1;

  template <class F>
  void visit(F&& f) {
    f("kind", kind,
      "tales; recall: keys with a digit each, then each key again; copy: words of random "
      "letters, then the same again; lookup: where people live, then questions about half of them");
    f("documents", documents, "documents", {1, 1e9});
    f("seed", seed, "another seed, other documents");
    f("keys", keys,
      "keys of recall, words of copy, people of lookup; of several, each document draws one",
      {1, 4096});
    f("distance", distance,
      "bytes of other sentences, at least, between what is told and what is asked; of several, "
      "each document draws one",
      {0, 1 << 24});
    f("asked", asked,
      "times that each key of recall is asked, all of them in a new order each time: the more, the "
      "larger is the share of the text that can be known",
      {1, 4096});
    f("length", length,
      "bytes of every document: other sentences before it fill it up, so that with an empty "
      "separator and a context of as many bytes each training window is one document; 0: as it "
      "comes",
      {0, 1 << 24});
    f("share", share, "share of the documents that are of the kind; the others are tales", {0, 1});
  }
};

/// The same documents for the same options on every platform; the first n of a longer corpus are
/// the shorter corpus. Tales ask nothing that is marked. Throws std::invalid_argument where an
/// option is out of range or a document is longer than `length`.
std::vector<AskedDocument> generate_far_documents(const FarCorpusOptions& options);

/// Texts with the separator between them.
std::string joined_texts(const std::vector<AskedDocument>& documents, std::string_view separator);

}  // namespace focus
