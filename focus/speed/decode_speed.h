#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "focus/evaluation/attention_spec.h"
#include "focus/method/cache_numbers.h"

// How fast a model generates: one token after another on a cache.
namespace focus {

/// Decoding of `decoded_tokens` tokens behind `context` others.
struct DecodeSpeed {
  Index context = 0, decoded_tokens = 0;
  std::string attention;
  double tokens_per_second = 0;  // of the median step
  double keys_read = 1;          // share of the cached keys
  std::size_t weight_bytes = 0;  // that a token multiplies, as they are stored
  std::size_t cache_bytes = 0;   // of keys, values and sums

  /// That a token reads of weights and cache.
  double bytes_per_token() const {
    return static_cast<double>(weight_bytes) + keys_read * static_cast<double>(cache_bytes);
  }
  double bytes_per_second() const { return tokens_per_second * bytes_per_token(); }

  void visit(auto&& f) {
    FOCUS_MEMBERS(f, context, decoded_tokens, attention, tokens_per_second, keys_read, weight_bytes,
                  cache_bytes);
  }
};

/// Fills a cache with the first `context` ids and times those after it, all that there are, one by
/// one. `spec` is resolved and can generate (attention_to_generate()).
DecodeSpeed measure_decoding(LoadedModel& model, const AttentionSpec& spec,
                             const std::vector<std::int32_t>& ids, Index context, CacheDtype cache);

/// Bytes in a second that all threads together read of a memory of so many bytes, the fastest of
/// some rounds: what decoding cannot exceed where the weights are larger than the caches.
double read_bandwidth(std::size_t bytes = std::size_t{1} << 28);

}  // namespace focus
