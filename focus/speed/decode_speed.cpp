#include "focus/speed/decode_speed.h"

#include <omp.h>

#include <algorithm>
#include <atomic>

#include "autograd/base/clock.h"
#include "autograd/base/parallel.h"
#include "autograd/machine.h"
#include "focus/generation/generator.h"
#include "layers/module.h"

namespace focus {
namespace {

/// Bytes of the matrices that a token is multiplied with; of an embedding it reads only a row.
std::size_t multiplied_bytes(LoadedModel& model) {
  std::size_t bytes = model.decoder->head_weight().bytes();
  for (Block& block : model.decoder->layers())
    for_each_parameter(block, [&](const std::string&, const Weight& p) { bytes += p.bytes(); });
  return bytes;
}

}  // namespace

DecodeSpeed measure_decoding(LoadedModel& model, const AttentionSpec& spec,
                             const std::vector<std::int32_t>& ids, Index context,
                             CacheDtype cache) {
  const ActiveAttention active(model, spec);
  Generator generator(*model.decoder, model.focus(), active.mode(), cache);
  const auto held = static_cast<std::size_t>(context);
  generator.next_logits(std::span(ids).first(held));
  std::vector<double> seconds;
  for (std::size_t t = held; t < ids.size(); ++t) {
    const double start = now();
    generator.next_logits(std::span(ids).subspan(t, 1));
    seconds.push_back(now() - start);
  }
  return {.context = context,
          .decoded_tokens = static_cast<Index>(seconds.size()),
          .attention = active.title(),
          .tokens_per_second = 1 / median(seconds),
          .keys_read = generator.cache()->share_read(),
          .weight_bytes = multiplied_bytes(model),
          .cache_bytes = generator.cache()->bytes()};
}

double read_bandwidth(std::size_t bytes) {
  constexpr int kRounds = 5;
  constexpr Index kLine = 64 / sizeof(std::uint64_t);
  const std::vector<std::uint64_t> memory(bytes / sizeof(std::uint64_t), 1);
  const Index lines = static_cast<Index>(memory.size()) / kLine;
  const Index part = (lines + omp_get_max_threads() - 1) / omp_get_max_threads();
  std::uint64_t sum = 0;
  double fastest = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::atomic<std::uint64_t> total = 0;
    const double start = now();
    parallel_chunks(lines, part, [&](Index begin, Index end) {
      // A number of each line brings all of it; two places at once keep more lines on their way.
      const Index half = (end - begin) / 2;
      const std::uint64_t* first = memory.data() + begin * kLine;
      std::uint64_t both = 0;
      for (Index i = 0; i < half * kLine; i += kLine) both += first[i] + first[half * kLine + i];
      total += both;
    });
    const double seconds = now() - start;
    sum += total;
    if (round > 0) fastest = std::max(fastest, static_cast<double>(bytes) / seconds);
  }
  // The sum is used, so that it is computed.
  return sum > 0 ? fastest : 0;
}

}  // namespace focus
