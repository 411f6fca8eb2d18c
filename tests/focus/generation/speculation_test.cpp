#include "focus/generation/speculation.h"

#include <gtest/gtest.h>

#include "focus/generation/scheduler.h"
#include "tests/support/compare.h"
#include "tests/support/tiny_focus.h"

namespace focus {
namespace {

using Kind = AttentionKind;

std::vector<AttentionSpec> drafting_modes() {
  return {{.kind = Kind::summary, .summary = {.local_window = 4, .block = 8, .sinks = 1}},
          {.kind = Kind::hard, .top_k = 1, .gate = HardGate::keep}};
}
std::vector<Drafting> draftings() {
  std::vector<Drafting> all = {{.always = 3}, {.always = 7}, {}};
  for (const AttentionSpec& mode : drafting_modes())
    for (const Index always : {1, 4, 7, 0}) all.push_back({mode, always});
  return all;
}

/// Texts of a tiny model of bytes, which it likes to repeat.
class Texts {
 public:
  explicit Texts(const std::string& type = "llama") : model_(type) {}
  Generated text(const std::optional<Drafting>& drafting, const GenerationOptions& options,
                 CacheDtype cache = CacheDtype::float32) {
    Scheduler scheduler(
        {model_.decoder, &*model_.focus, *tokenizer_, {}, {.kind = Kind::dense}, cache, drafting},
        {});
    Scheduler::Ticket ticket = *scheduler.submit(random_ids(40, 37, 7), options);
    while (scheduler.step()) {
    }
    return ticket.result.get();
  }

 private:
  std::unique_ptr<Tokenizer> tokenizer_ = load_tokenizer("bytes");
  TinyFocus model_;
};

std::string described(const Drafting& drafting) {
  return (drafting.attention ? drafting.attention->name() : "ngram") + " " +
         std::to_string(drafting.always);
}

TEST(Speculation, GreedyTextsAreThoseWithoutIt) {
  for (const std::string& type : family_names()) {
    Texts texts(type);
    for (const CacheDtype cache : {CacheDtype::float32, CacheDtype::float16, CacheDtype::q8_0}) {
      const GenerationOptions options{.max_new_tokens = 70};
      const Generated wanted = texts.text(std::nullopt, options, cache);
      EXPECT_EQ(wanted.drafted_tokens, 0);
      EXPECT_EQ(wanted.passes, 69);  // the prompt's draws the first
      for (const Drafting& drafting : draftings()) {
        if (cache != CacheDtype::float32 && drafting.always != 4) continue;
        const Generated made = texts.text(drafting, options, cache);
        EXPECT_EQ(made.ids, wanted.ids) << type << ", " << described(drafting);
        EXPECT_EQ(made.stop, wanted.stop);
        EXPECT_EQ(made.passes + made.right_tokens, 69) << type << ", " << described(drafting);
        EXPECT_LE(made.right_tokens, made.drafted_tokens);
        if (drafting.always > 0 && drafting.attention) {
          EXPECT_GT(made.right_tokens, 0) << type << ", " << described(drafting);
          EXPECT_LT(made.passes, 69);
        }
      }
    }
  }
}

/// The same random numbers draw the same tokens, so each text has the probability that it has
/// without drafts.
TEST(Speculation, DrawnTextsAreThoseWithoutItWhateverTheSampling) {
  Texts texts;
  const std::vector<SamplingOptions> samplings = {
      {.temperature = 1},
      {.temperature = 1.7, .top_k = 5},
      {.temperature = 1, .top_p = 0.8},
      {.temperature = 2, .min_p = 0.1},
      {.temperature = 1, .repetition_penalty = 1.2},
      {.temperature = 1, .rules = {.suppress_tokens = {3}, .no_repeat_ngram_size = 3}}};
  Index drafted = 0, right = 0;
  for (const SamplingOptions& sampling : samplings)
    for (std::uint64_t seed = 1; seed < 4; ++seed) {
      const GenerationOptions options{
          .max_new_tokens = 50, .seed = seed, .sampling = sampling, .logit_bias = {{5, 2}}};
      const Generated wanted = texts.text(std::nullopt, options);
      for (const Drafting& drafting : draftings()) {
        const Generated made = texts.text(drafting, options);
        EXPECT_EQ(made.ids, wanted.ids) << described(drafting) << ", seed " << seed;
        if (!drafting.attention) continue;
        drafted += made.drafted_tokens;
        right += made.right_tokens;
      }
    }
  // Drafts draw with the numbers that the text draws with: alike logits, the same tokens.
  EXPECT_GT(right, drafted / 10);
}

TEST(Speculation, TextsThatEndWithinAPassEndThere) {
  Texts texts;
  const GenerationOptions all{.max_new_tokens = 60};
  const Generated whole = texts.text(std::nullopt, all);
  for (Index length = 1; length < 20; length += 3) {
    GenerationOptions options{.max_new_tokens = length};
    EXPECT_EQ(texts.text(Drafting{.always = 7}, options).ids,
              std::vector(whole.ids.begin(), whole.ids.begin() + length));
    options = all;
    options.until.push_back(whole.text.substr(length, 3));
    const Generated wanted = texts.text(std::nullopt, options);
    for (const Drafting& drafting : draftings()) {
      const Generated made = texts.text(drafting, options);
      EXPECT_EQ(made.text, wanted.text);
      EXPECT_EQ(made.ids, wanted.ids);
      EXPECT_EQ(made.stop, wanted.stop);
    }
  }
}

}  // namespace
}  // namespace focus
