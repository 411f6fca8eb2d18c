#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "autograd/base/random.h"
#include "layers/decoder.h"

namespace focus {

/// Does a token's prediction depend on later tokens? Changes those of a random sequence from some
/// cuts on and demands bit-identical logits before them.
class LeakageProbe {
 public:
  /// `context` tokens, at least 2; `cuts` places from which all later tokens are changed. The
  /// decoder must outlive the probe.
  LeakageProbe(const Decoder& decoder, Index context, std::int64_t cuts, std::uint64_t seed);

  struct Leak {
    Index cut = 0;       // tokens from here on were changed
    Index position = 0;  // the first whose logits differ
  };
  /// Tests the decoder's current attention; empty if it does not leak.
  std::optional<Leak> run();

 private:
  std::int32_t random_id();
  Tensor logits(const std::vector<std::int32_t>& tokens) const;

  const Decoder& decoder_;
  const std::int32_t vocab_size_;
  const std::int64_t cuts_;
  Rng rng_;
  std::vector<std::int32_t> ids_;
};

}  // namespace focus
