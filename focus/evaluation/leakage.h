#pragma once

#include <cstdint>
#include <optional>

#include "layers/decoder.h"

namespace focus {

struct Leak {
  Index cut = 0;       // tokens from here on were changed
  Index position = 0;  // the first whose logits differ
};
/// Does a token's prediction depend on later tokens? Changes those of a random sequence of
/// `context` tokens, at least 2, from some `cuts` on, one after the other, and demands
/// bit-identical logits before them, with the decoder's current attention; empty if it does not
/// leak. The same seed, the same tokens.
std::optional<Leak> find_leak(const Decoder& decoder, Index context, std::int64_t cuts,
                              std::uint64_t seed);

}  // namespace focus
