#include "focus/speed/decode_speed.h"

#include "apps/command.h"
#include "autograd/base/check.h"
#include "autograd/machine.h"
#include "data/settings/struct_json.h"
#include "data/synthetic/corpus.h"
#include "data/text/format.h"

namespace focus::app {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr Index kSteps = 32;  // timed after each length

struct DecodeSpeedArguments {
  ModelOptions model;
  CacheOptions cache;
  std::vector<Index> lengths;
  std::vector<std::string> attentions;
  std::string json;
};

/// The ids of the built-in tales, repeated if there are fewer than `count`.
Ids tale_ids(const LoadedModel& model, Index count) {
  const Ids text = model.prompt_ids(generate_corpus({.documents = 20}));
  model.require_ids(text, "the built-in text");
  Ids ids(static_cast<std::size_t>(count));
  for (std::size_t t = 0; t < ids.size(); ++t) ids[t] = text[t % text.size()];
  return ids;
}

std::vector<AttentionSpec> resolved(const DecodeSpeedArguments& o, const LoadedModel& model) {
  std::vector<std::string> words = o.attentions;
  if (words.empty()) {
    words = {"dense"};
    if (model.focus() != nullptr) words.emplace_back();
  }
  std::vector<AttentionSpec> specs;
  for (const std::string& word : words) {
    specs.push_back(attention_to_generate(word, model, "--attention"));
    const AttentionKind kind = specs.back().kind;
    if (kind == AttentionKind::trained || kind == AttentionKind::baseline)
      fail(
          "--attention {}: it has no cache; decoding is timed with dense, hard:K, summary:M or "
          "local",
          word);
  }
  return specs;
}

void print_row(const DecodeSpeed& row, double bandwidth) {
  fmt::print("{:>8}  {:<26} {:>9.1f} {:>10.1f}% {:>10} {:>10} {:>8.1f} {:>9.0f}%\n", row.context,
             row.attention, row.tokens_per_second, 100 * row.keys_read,
             format_bytes(static_cast<double>(row.cache_bytes)),
             format_bytes(row.bytes_per_token()), row.bytes_per_second() / 1e9,
             100 * row.bytes_per_second() / bandwidth);
  std::fflush(stdout);
}

}  // namespace

int run_decode_speed(Arguments arguments) {
  DecodeSpeedArguments o;
  CLI::App app(
      "Decoding speed: tokens/s of token-by-token generation after a context of each length, and "
      "the share of the memory bandwidth that it uses. Each token reads all weights that multiply "
      "it, and the share of the cached keys that its attention reads.",
      "focus speed --decode");
  bool decode = false;
  app.add_flag("--decode", decode, "time a model's decoding");
  o.model.add_to(app, {"bos"});
  app.add_option("--lengths", o.lengths,
                 "tokens in the cache before the timed ones (default: 5, 1024 and the largest that "
                 "fits the model's positions, at most 8160)")
      ->delimiter(',');
  add_attention_option(app, o.attentions,
                       "attentions to time, interleaved: dense, hard:2, summary:8, local (default: "
                       "dense, and the default of a Focus adapter)");
  add_settings(app, config_fields(o.cache));
  app.add_option("--json", o.json, "also write the figures to this JSON file");
  parse_arguments(app, arguments);

  LoadedModel model = o.model.load();
  const Index most = model.decoder->config().max_position_embeddings - kSteps;
  if (o.lengths.empty())
    for (const Index length : {Index{5}, Index{1024}, std::min<Index>(most, 8160)})
      if (length <= most && (o.lengths.empty() || length > o.lengths.back()))
        o.lengths.push_back(length);
  for (const Index length : o.lengths)
    if (length < 1 || length > most)
      fail(
          "--lengths {}: a length must be from 1 to {}: {} has {} positions, and {} tokens are "
          "decoded",
          length, most, o.model.base, most + kSteps, kSteps);
  const std::vector<AttentionSpec> specs = resolved(o, model);
  const double bandwidth = read_bandwidth();
  const CacheDtype cache = o.cache.of(o.model.precision);
  fmt::print(
      "{}\n{}, {}, {} cache; memory read at {:.1f} GB/s; {} tokens timed after each context\n\n",
      this_machine().line(), o.model.base, name_of(o.model.precision), name_of(cache),
      bandwidth / 1e9, kSteps);
  fmt::print("{:>8}  {:<26} {:>9} {:>11} {:>10} {:>10} {:>8} {:>10}\n", "context", "attention",
             "tokens/s", "keys read", "cache", "per token", "GB/s", "of memory");
  std::vector<DecodeSpeed> rows;
  for (const Index length : o.lengths) {
    const Ids ids = tale_ids(model, length + kSteps);
    for (const AttentionSpec& spec : specs) {
      rows.push_back(measure_decoding(model, spec, ids, length, cache));
      print_row(rows.back(), bandwidth);
    }
  }
  write_json(o.json, {{"machine", machine_json()},
                      {"model", o.model.base},
                      {"adapter", o.model.adapter},
                      {"precision", name_of(o.model.precision)},
                      {"kv_cache_dtype", name_of(cache)},
                      {"read_bytes_per_second", bandwidth},
                      {"rows", structs_to_json(rows)}});
  return 0;
}

}  // namespace focus::app
