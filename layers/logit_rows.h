#pragma once

#include <algorithm>

#include "layers/decoder.h"

namespace focus {

/// Some consecutive rows of a matrix, copied.
inline Tensor rows_of(const Tensor& x, Index first, Index rows) {
  const Index width = x.cols();
  return Tensor::from({rows, width}, x.span().subspan(first * width, rows * width));
}

/// Calls f(first, rows, their logits) over `rows` rows of `hidden` from `begin` on, counted from
/// there, at most `most` at once.
template <class F>
void for_logits(const Decoder& decoder, const Tensor& hidden, Index begin, Index rows, Index most,
                F&& f) {
  for (Index first = 0; first < rows; first += most) {
    const Index count = std::min(most, rows - first);
    f(first, count, decoder.logits(rows_of(hidden, begin + first, count)).value());
  }
}
/// The same over all rows, as many at once as have 8 million logits.
template <class F>
void for_logits(const Decoder& decoder, const Tensor& hidden, F&& f) {
  const Index most = std::max<Index>(1, (1 << 23) / decoder.config().vocab_size);
  for_logits(decoder, hidden, 0, hidden.rows(), most, f);
}

}  // namespace focus
