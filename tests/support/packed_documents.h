#pragma once

#include <vector>

#include "focus/training/fit.h"
#include "tests/support/random.h"

namespace focus {

/// Documents of these lengths, one behind the other in one row.
inline Batch packed_documents(const std::vector<Index>& lengths, std::int32_t vocab_size,
                              int seed = 3) {
  Batch batch{.ids = {}, .batch = 1, .documents = {0}};
  for (const Index length : lengths) batch.documents.push_back(batch.documents.back() + length);
  batch.ids = random_ids(batch.documents.back(), vocab_size, seed);
  batch.context = batch.documents.back();
  return batch;
}

/// Document i of it as a row of its own.
inline Batch document_alone(const Batch& all, std::size_t i) {
  const Index begin = all.documents[i], end = all.documents[i + 1];
  Batch one{.ids = {all.ids.begin() + begin, all.ids.begin() + end}, .batch = 1};
  one.context = end - begin;
  if (!all.counts.empty()) {
    one.counts = {all.counts.begin() + begin, all.counts.begin() + end};
    one.documents = {0, one.context};
  }
  return one;
}

/// The hidden states of a row [1, tokens, hidden_size].
inline Variable hidden_of(const Decoder& decoder, const Batch& batch) {
  return decoder.hidden_states(batch.ids, batch.batch, 0, pass_over(batch));
}

/// The hidden states of each document alone, one behind the other.
inline Variable hidden_alone(const Decoder& decoder, const Batch& all) {
  std::vector<Variable> parts;
  for (std::size_t i = 0; i + 1 < all.documents.size(); ++i)
    parts.push_back(hidden_of(decoder, document_alone(all, i)));
  return concatenate(parts);
}

}  // namespace focus
