#include <cstring>

#include "apps/command.h"
#include "autograd/check.h"

namespace focus {
namespace {

/// The first position before `cut` at which two runs' logits differ in a bit; nullopt where none.
std::optional<Index> first_difference(const Tensor& before, const Tensor& after, Index cut) {
  const auto vocab = static_cast<std::size_t>(before.cols());
  for (Index t = 0; t < cut; ++t)
    if (std::memcmp(before.data() + t * before.cols(), after.data() + t * before.cols(),
                    vocab * sizeof(Real)) != 0)
      return t;
  return std::nullopt;
}

/// Changes later tokens of a random sequence at some cuts and compares the logits before them.
class LeakTest {
 public:
  LeakTest(const Decoder& decoder, Index context, std::int64_t cuts, std::int64_t seed)
      : decoder_(decoder),
        vocab_size_(static_cast<std::int32_t>(decoder.config().vocab_size)),
        cuts_(cuts),
        rng_(static_cast<std::uint64_t>(seed)),
        ids_(static_cast<std::size_t>(context)) {
    for (auto& id : ids_) id = random_id();
  }

  struct Leak {
    Index cut = 0, position = 0;
  };
  /// Of the attention that the decoder has now.
  std::optional<Leak> run() {
    const auto context = static_cast<Index>(ids_.size());
    const Tensor before = logits(ids_);
    for (std::int64_t c = 1; c <= cuts_; ++c) {
      const Index cut = std::clamp<Index>(context * c / (cuts_ + 1), 1, context - 1);
      std::vector<std::int32_t> changed = ids_;
      for (auto id = changed.begin() + cut; id != changed.end(); ++id)
        *id = (*id + 1 + random_id() % std::max<std::int32_t>(1, vocab_size_ - 1)) % vocab_size_;
      if (const auto at = first_difference(before, logits(changed), cut)) return Leak{cut, *at};
    }
    return std::nullopt;
  }

 private:
  std::int32_t random_id() {
    return static_cast<std::int32_t>(rng_.below(static_cast<std::uint64_t>(vocab_size_)));
  }
  Tensor logits(const std::vector<std::int32_t>& tokens) const {
    return decoder_.logits(decoder_.hidden_states(tokens, 1)).value();
  }

  const Decoder& decoder_;
  const std::int32_t vocab_size_;
  const std::int64_t cuts_;
  Rng rng_;
  std::vector<std::int32_t> ids_;
};

}  // namespace

int run_leak_test(Arguments arguments) {
  ModelOptions options;
  std::string json;
  Index context = 0;
  std::vector<std::string> words;
  std::int64_t seed = 1, cuts = 4;
  CLI::App app(
      "Changes later tokens, keeps the length, and demands bit-identical logits before them: "
      "dense, "
      "soft and hard k=1..K and the mechanism that the model was trained with, or those that "
      "--attention names. Exit status 1 where one leaks.",
      "focus leak-test");
  options.add_to(app);
  app.add_option("--context", context,
                 "tokens of the sequence (default: 512, or the model's positions if fewer)");
  app.add_option("--cuts", cuts, "places from which all later tokens are changed")
      ->check(CLI::PositiveNumber);
  app.add_option("--seed", seed, "of the random tokens");
  add_attention_option(app, words, "these, as focus eval takes them: soft,hard:2,window:128");
  refuse_attention_options(app, {"--routing"});
  app.add_option("--json", json, "write the figures to this file too");
  parse_arguments(app, arguments);

  LoadedModel model = options.load();
  const Index positions = model.decoder->config().max_position_embeddings;
  if (context == 0) context = std::min<Index>(512, positions);
  check(context >= 2 && context <= positions,
        "--context must be from 2 to the {} positions of {}, not {}", positions, options.base,
        context);
  const NoGrad guard;
  LeakTest test(*model.decoder, context, cuts, seed);
  bool leaks = false;
  auto results = nlohmann::ordered_json::array();
  for (const AttentionSpec& spec :
       resolve_words(words, model, UnsaidBalance::trained, "--attention")) {
    const ActiveAttention active(model, spec);
    const auto leak = test.run();
    if (leak)
      fmt::print(
          "{:<32} LEAKS: tokens from {} on were changed, logits differ first at position {}\n",
          active.title(), leak->cut, leak->position);
    else
      fmt::print("{:<32} no leak: logits before {} changed places are bit-identical\n",
                 active.title(), cuts);
    leaks = leaks || leak.has_value();
    results.push_back({{"mode", active.title()},
                       {"leaks", leak.has_value()},
                       {"first_difference",
                        leak ? nlohmann::ordered_json(leak->position) : nlohmann::ordered_json()}});
  }
  write_json(json, {{"model", options.base},
                    {"adapter", options.adapter},
                    {"context", context},
                    {"compute", name_of(options.compute)},
                    {"leaks", leaks},
                    {"modes", results}});
  return leaks ? 1 : 0;
}

}  // namespace focus
