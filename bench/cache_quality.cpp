// What a cache of fewer bits costs: KL(f32 || f16, q8_0 and, with groups of keys, q4) and KL(f16 ||
// q8_0) of the next-token predictions behind a long text whose keys and values are read from the
// cache:
//   cache_quality MODEL TEXT TOKENS [ATTENTION [ADAPTER]]
// The text enters in pieces of 512 tokens; its last 512 are scored, in pieces of 32. Products in
// float32. A row of JSON.
#include <fmt/format.h>
#include <focus/all.h>

namespace {

using namespace focus;

constexpr Index kPiece = 512, kScored = 512, kScoredPiece = 32;

/// Hidden states of the last kScored tokens [kScored, hidden_size], and the cache's bytes.
std::pair<Tensor, std::size_t> states(LoadedModel& model, const AttentionSpec& attention,
                                      CacheDtype dtype, std::span<const std::int32_t> ids) {
  CachedDecoder decoder(*model.decoder, model.focus());
  SequenceCache cache = decoder.cache(attention, dtype);
  const Index count = static_cast<Index>(ids.size());
  std::vector<Real> rows;
  for (Index at = 0; at < count;) {
    const Index begin = count - kScored;
    const Index size = at < begin ? std::min(kPiece, begin - at) : kScoredPiece;
    const CachedDecoder::Part part{&cache, ids.subspan(at, size)};
    const Tensor hidden = decoder.hidden_states({&part, 1});
    if (at >= begin) rows.insert(rows.end(), hidden.span().begin(), hidden.span().end());
    at += size;
  }
  Tensor all({kScored, static_cast<Index>(rows.size()) / kScored});
  std::ranges::copy(rows, all.span().begin());
  return {all, cache.bytes()};
}

double mean_kl(const Decoder& decoder, const Tensor& to, const Tensor& from) {
  double sum = 0;
  for (const double kl : decoder.kl_divergence_rows(from, to)) sum += kl;
  return sum / kScored;
}

}  // namespace

int main(int argc, char** argv) try {
  const NoGrad guard;
  check(argc >= 4, "wanted: cache_quality MODEL TEXT TOKENS [ATTENTION [ADAPTER]]");
  OpenOptions options{.precision = Precision::float32};
  if (argc > 5) options.adapters = {argv[5]};
  LoadedModel model = open(argv[1], options);
  std::vector<std::int32_t> ids = model.prompt_ids(read_text_file(argv[2]));
  const std::size_t tokens = std::stoul(argv[3]);
  check(ids.size() >= tokens && tokens > kScored, "the text has {} tokens, wanted {}", ids.size(),
        tokens);
  ids.resize(tokens);
  const ActiveAttention active(
      model, attention_to_generate(argc > 4 ? argv[4] : "dense", model, "attention"));
  const AttentionSpec& attention = active.mode();
  const auto [exact, exact_bytes] = states(model, attention, CacheDtype::float32, ids);
  const auto [half, half_bytes] = states(model, attention, CacheDtype::float16, ids);
  const auto [q8, q8_bytes] = states(model, attention, CacheDtype::q8_0, ids);
  const Decoder& decoder = *model.decoder;
  fmt::print(
      "{{\"attention\": \"{}\", \"tokens\": {}, \"scored\": {}, \"kl_f32_f16\": {:.7f}, "
      "\"kl_f32_q8_0\": {:.7f}, \"kl_f16_q8_0\": {:.7f}, \"bytes_f32\": {}, \"bytes_f16\": {}, "
      "\"bytes_q8_0\": {}",
      active.title(), tokens, kScored, mean_kl(decoder, exact, half), mean_kl(decoder, exact, q8),
      mean_kl(decoder, half, q8), exact_bytes, half_bytes, q8_bytes);
  if (attention.kind == AttentionKind::summary) {
    const auto [q4, q4_bytes] = states(model, attention, CacheDtype::q4, ids);
    fmt::print(", \"kl_f32_q4\": {:.7f}, \"bytes_q4\": {}", mean_kl(decoder, exact, q4), q4_bytes);
  }
  fmt::print("}}\n");
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
