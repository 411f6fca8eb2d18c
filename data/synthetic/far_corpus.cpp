#include "data/synthetic/far_corpus.h"

#include <cmath>

#include "autograd/base/check.h"
#include "data/synthetic/corpus.h"
#include "data/synthetic/far_documents.h"
#include "data/text/text.h"

namespace focus {
namespace {

/// Spreads the share of documents of the kind evenly over documents 0, 1, 2, ...
bool is_of_kind(std::int64_t document, double share) {
  const auto before = [&](std::int64_t n) { return std::floor(static_cast<double>(n) * share); };
  return before(document + 1) > before(document);
}

AskedDocument drawn_document(Rng& rng, const FarCorpusOptions& options,
                             const corpus::Filler& filler) {
  const auto distance = static_cast<std::size_t>(
      options.distance[static_cast<std::size_t>(rng.below(options.distance.size()))]);
  // One number is not drawn: its documents are what they were when there was no list.
  const std::int64_t keys =
      options.keys.size() == 1
          ? options.keys[0]
          : options.keys[static_cast<std::size_t>(rng.below(options.keys.size()))];
  const corpus::FarDraw draw{
      .filler = filler, .keys = keys, .distance = distance, .asked = options.asked};
  switch (options.kind) {
    case CorpusKind::copy:
      return corpus::copy_document(rng, draw);
    case CorpusKind::lookup:
      return corpus::lookup_document(rng, draw);
    case CorpusKind::chain:
      return corpus::chain_document(rng, draw);
    default:
      return corpus::recall_document(rng, draw);
  }
}

/// Puts sentences before a document, cut where it begins, so that it has `length` bytes.
AskedDocument filled_up(Rng& rng, AskedDocument document, std::size_t length,
                        const corpus::Filler& filler) {
  check(document.text.size() <= length,
        "corpus: length is {}, but a generated document has {} bytes: expected a larger length, "
        "fewer keys or a smaller distance",
        length, document.text.size());
  const std::size_t missing = length - document.text.size();
  if (missing == 0) return document;
  std::string before = filler(rng, missing);
  before.erase(0, before.size() - missing);
  // No part of a character begins the text.
  for (char& byte : before) {
    if ((static_cast<unsigned char>(byte) & 0xC0U) != 0x80U) break;
    byte = ' ';
  }
  document.text.insert(0, before);
  for (Answer& answer : document.answers) {
    answer.begin += missing;
    answer.end += missing;
    answer.source += missing;
  }
  return document;
}

AskedDocument far_document(Rng& rng, const FarCorpusOptions& options,
                           const corpus::Filler& filler) {
  AskedDocument document = drawn_document(rng, options, filler);
  if (options.length == 0) return document;
  return filled_up(rng, std::move(document), static_cast<std::size_t>(options.length), filler);
}

}  // namespace

std::vector<AskedDocument> generate_far_documents(const FarCorpusOptions& options) {
  check(options.documents >= 0, "corpus: documents must be 0 or more, got {}", options.documents);
  check(options.share >= 0 && options.share <= 1, "corpus: share must be from 0 to 1, got {}",
        options.share);
  check(!options.keys.empty(), "corpus: keys is empty");
  for (const std::int64_t keys : options.keys)
    check(keys >= 1, "corpus: keys must be at least 1, got {}", keys);
  check(!options.distance.empty(), "corpus: distance is empty");
  for (const std::int64_t distance : options.distance)
    check(distance >= 0, "corpus: distance must be 0 or more, got {}", distance);
  check(options.asked >= 1, "corpus: asked must be at least 1, got {}", options.asked);
  check(options.length >= 0, "corpus: length must be 0 or more, got {}", options.length);
  const double share = options.kind == CorpusKind::tales ? 0 : options.share;
  check(options.length == 0 || share == 1,
        "corpus: length is {}, but the length of tales cannot be set: expected share 1 and a kind "
        "other than tales, or length 0",
        options.length);
  check(options.haystack.empty() || options.kind != CorpusKind::tales,
        "corpus: tales take nothing from haystack \"{}\": expected another kind, or none",
        options.haystack);
  std::int64_t tales = 0;
  for (std::int64_t i = 0; i < options.documents; ++i) tales += is_of_kind(i, share) ? 0 : 1;
  std::vector<CorpusDocument> told = generate_documents({.seed = options.seed, .documents = tales});
  const corpus::Filler filler = options.haystack.empty()
                                    ? corpus::Filler()
                                    : corpus::Filler(read_document_file(options.haystack));
  std::vector<AskedDocument> documents;
  Rng rng(options.seed);
  auto tale = told.begin();
  for (std::int64_t i = 0; i < options.documents; ++i)
    documents.push_back(is_of_kind(i, share)
                            ? far_document(rng, options, filler)
                            : AskedDocument{.text = std::move((tale++)->text), .answers = {}});
  return documents;
}

std::string joined_texts(const std::vector<AskedDocument>& documents, std::string_view separator) {
  std::string text;
  for (const AskedDocument& document : documents) {
    if (!text.empty()) text += separator;
    text += document.text;
  }
  return text;
}

}  // namespace focus
