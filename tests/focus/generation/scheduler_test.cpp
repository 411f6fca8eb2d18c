#include "focus/generation/scheduler.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/support/compare.h"
#include "tests/support/tiny_focus.h"

namespace focus {
namespace {

using Kind = AttentionKind;
using Ids = std::vector<std::int32_t>;

/// A tiny model whose tokens are bytes.
struct Generating {
  explicit Generating(const AttentionSpec& mode = {.kind = Kind::dense},
                      const std::string& type = "llama")
      : model(type), with{model.decoder, &*model.focus, *tokenizer, {}, mode} {}
  std::unique_ptr<Tokenizer> tokenizer = load_tokenizer("bytes");
  TinyFocus model;
  GenerationModel with;
};

Generated finished(Scheduler& scheduler, Scheduler::Ticket& ticket) {
  while (scheduler.step()) {
  }
  return ticket.result.get();
}

Generated alone(const GenerationModel& model, const Ids& prompt, const GenerationOptions& options) {
  Scheduler scheduler(model, {});
  Scheduler::Ticket ticket = *scheduler.submit(prompt, options);
  return finished(scheduler, ticket);
}

struct Asked {
  Ids prompt;
  GenerationOptions options;
};
std::vector<Asked> several() {
  return {
      {random_ids(50, 37, 1), {.max_new_tokens = 20}},
      {random_ids(3, 37, 2), {.max_new_tokens = 30, .seed = 5, .sampling = {.temperature = 1}}},
      {random_ids(20, 37, 3), {.max_new_tokens = 7, .sampling = {.repetition_penalty = 1.3}}},
      {random_ids(33, 37, 4), {.max_new_tokens = 12, .seed = 9, .sampling = {.temperature = 2}}},
      {random_ids(9, 37, 5), {.max_new_tokens = 25}}};
}

TEST(Scheduler, TextsTogetherAreThoseThatEachIsAlone) {
  for (const char* type : {"llama", "gpt2", "gemma2"})
    for (const AttentionSpec& mode : cached_modes())
      for (const Index piece : {7, 256}) {
        Generating of(mode, type);
        Scheduler scheduler(of.with, {.slots = 3, .waiting = 9, .piece = piece});
        std::vector<Scheduler::Ticket> tickets;
        std::vector<Asked> all = several();
        for (Asked& asked : all) {
          asked.options.top_logprobs = 0;
          tickets.push_back(*scheduler.submit(asked.prompt, asked.options));
        }
        while (scheduler.step()) {
        }
        for (std::size_t i = 0; i < tickets.size(); ++i) {
          const Generated made = tickets[i].result.get();
          const Asked& asked = all[i];
          const Generated single = alone(of.with, asked.prompt, asked.options);
          // Rows of one pass have the bits that each has alone, and a prompt in one piece too.
          for (std::size_t t = 0; piece > 50 && t < single.logprobs.size(); ++t)
            EXPECT_EQ(made.logprobs[t].logprob, single.logprobs[t].logprob)
                << type << ", " << mode.name() << ", text " << i << ", token " << t;
          EXPECT_EQ(made.ids, single.ids)
              << type << ", " << mode.name() << ", text " << i << " in pieces of " << piece;
          EXPECT_EQ(made.stop, "max-new-tokens");
          EXPECT_EQ(made.prompt_tokens, std::ssize(asked.prompt));
          EXPECT_EQ(made.computed_tokens, made.prompt_tokens + std::ssize(made.ids) - 1);
        }
      }
}

TEST(Scheduler, ATextThatIsAloneHasDrafts) {
  for (const AttentionSpec& drafts : cached_modes()) {
    if (drafts.kind == AttentionKind::dense) continue;
    Generating of;
    std::vector<Generated> expected;
    for (const Asked& asked : several())
      expected.push_back(alone(of.with, asked.prompt, asked.options));
    of.with.drafting = Drafting{drafts, 4};
    Scheduler scheduler(of.with, {.slots = 3, .waiting = 9, .undo = 64});
    std::vector<Scheduler::Ticket> tickets;
    for (const Asked& asked : several())
      tickets.push_back(*scheduler.submit(asked.prompt, asked.options));
    Index drafted = 0, right = 0;
    for (std::size_t i = 0; i < tickets.size(); ++i) {
      const Generated made = finished(scheduler, tickets[i]);
      EXPECT_EQ(made.ids, expected[i].ids) << drafts.name();
      drafted += made.drafted_tokens;
      right += made.right_tokens;
    }
    EXPECT_TRUE(drafted > 0 && right > 0 && right <= drafted) << drafts.name();
    // What drafts keep can be taken back as far as what they are for.
    Ids next = several()[4].prompt;
    next.insert(next.end(), expected[4].ids.begin(), expected[4].ids.end() - 12);
    next.push_back(1);
    Scheduler::Ticket ticket = *scheduler.submit(next, {.max_new_tokens = 5});
    EXPECT_EQ(finished(scheduler, ticket).reused_tokens, std::ssize(next) - 1) << drafts.name();
  }
}

TEST(Scheduler, TextsWithoutACacheAreTheReference) {
  for (const AttentionSpec& mode : cached_modes()) {
    Generating of(mode);
    GenerationModel without = of.with;
    without.cache.reset();
    for (const Asked& asked : several()) {
      const Generated whole = alone(without, asked.prompt, asked.options);
      EXPECT_EQ(alone(of.with, asked.prompt, asked.options).ids, whole.ids) << mode.name();
      EXPECT_FALSE(whole.cache_bytes || whole.keys_read);
    }
  }
}

TEST(Scheduler, APromptInPiecesDoesNotStopTheOthers) {
  Generating of;
  Scheduler scheduler(of.with, {.slots = 2, .waiting = 0, .piece = 8});
  int short_tokens = 0, before_long = -1;
  auto first = *scheduler.submit(random_ids(2, 37, 1), {.max_new_tokens = 40},
                                 [&](const std::string&, const Generated&) {
                                   ++short_tokens;
                                   return true;
                                 });
  scheduler.step();
  ASSERT_EQ(short_tokens, 1);
  auto second = *scheduler.submit(random_ids(80, 37, 2), {.max_new_tokens = 2},
                                  [&](const std::string&, const Generated&) {
                                    if (before_long < 0) before_long = short_tokens;
                                    return true;
                                  });
  EXPECT_EQ(finished(scheduler, second).ids.size(), 2u);
  EXPECT_EQ(before_long, 1 + 80 / 8);  // one token for each piece
  EXPECT_EQ(first.result.get().ids.size(), 40u);
}

TEST(Scheduler, TwoPromptsTakeTurns) {
  Generating of;
  Scheduler scheduler(of.with, {.slots = 2, .waiting = 0, .piece = 8});
  std::string order;
  const auto note = [&](char who) {
    return [&order, who](const std::string&, const Generated& made) {
      if (made.stop.empty()) order += who;
      return true;
    };
  };
  auto longer = *scheduler.submit(random_ids(80, 37, 1), {.max_new_tokens = 1}, note('l'));
  auto shorter = *scheduler.submit(random_ids(10, 37, 2), {.max_new_tokens = 2}, note('s'));
  while (scheduler.step()) {
  }
  EXPECT_EQ(order, "ssl");  // the later one is not behind all of the long one
}

TEST(Scheduler, APromptGoesOnFromACacheThatItBeginsWith) {
  for (const AttentionSpec& mode : cached_modes()) {
    Generating of(mode);
    Scheduler scheduler(of.with, {.slots = 2, .waiting = 0});
    const Ids other = random_ids(30, 37, 2);
    auto ticket = *scheduler.submit(random_ids(20, 37, 1), {.max_new_tokens = 5});
    const Generated before = finished(scheduler, ticket);
    ticket = *scheduler.submit(other, {.max_new_tokens = 5});
    EXPECT_EQ(finished(scheduler, ticket).reused_tokens, 0);

    Ids prompt = random_ids(20, 37, 1);
    prompt.insert(prompt.end(), before.ids.begin(), before.ids.end());
    for (const std::int32_t id : random_ids(6, 37, 3)) prompt.push_back(id);
    ticket = *scheduler.submit(prompt, {.max_new_tokens = 5});
    const Generated again = finished(scheduler, ticket);
    EXPECT_EQ(again.reused_tokens, 24);  // the last new token had not gone through the model
    EXPECT_EQ(again.ids, alone(of.with, prompt, {.max_new_tokens = 5}).ids) << mode.name();
    ticket = *scheduler.submit(other, {.max_new_tokens = 5});
    const Generated same = finished(scheduler, ticket);
    EXPECT_EQ(same.ids, alone(of.with, other, {.max_new_tokens = 5}).ids) << mode.name();
    const Scheduler::Counts counts = scheduler.counts();
    EXPECT_EQ(counts.requests, 4);
    EXPECT_EQ(counts.active, 0);
    EXPECT_EQ(counts.reused_tokens, 24 + same.reused_tokens);
    EXPECT_EQ(counts.generated_tokens, 20);
    EXPECT_EQ(counts.prompt_tokens, 20 + 30 + 31 + 30);
    EXPECT_GT(counts.cache_bytes, 0u);
  }
}

TEST(Scheduler, APromptThatPartsFromAnEarlierTextKeepsWhatIsAlike) {
  for (const AttentionSpec& mode : cached_modes()) {
    Generating of(mode);
    Scheduler scheduler(of.with, {.slots = 2, .waiting = 0, .undo = 40});
    const Ids text = random_ids(60, 37, 1), other = random_ids(70, 37, 2);
    const auto ask = [&](const Ids& prompt) {
      auto ticket = *scheduler.submit(prompt, {.max_new_tokens = 8});
      const Generated made = finished(scheduler, ticket);
      EXPECT_EQ(made.ids, alone(of.with, prompt, {.max_new_tokens = 8}).ids) << mode.name();
      return made.reused_tokens;
    };
    const auto question = [&](std::uint64_t seed) {
      Ids prompt = text;
      for (const std::int32_t id : random_ids(6, 37, seed)) prompt.push_back(id);
      prompt[60] = static_cast<std::int32_t>(seed);  // no two are alike
      return prompt;
    };
    EXPECT_EQ(ask(question(3)), 0);
    EXPECT_EQ(ask(other), 0);
    EXPECT_EQ(ask(question(4)), 60) << mode.name();
    EXPECT_EQ(ask(question(5)), 60) << mode.name();
    EXPECT_EQ(ask(question(5)), 65) << mode.name();  // all but its last token
    EXPECT_EQ(ask(other), 69) << mode.name();        // it had its slot for itself
    Ids stranger = random_ids(50, 37, 9);
    stranger[0] = other[0];  // a beginning that is not worth a cache
    EXPECT_EQ(ask(stranger), 0);
  }
}

TEST(Scheduler, AFullQueueRefusesAndCancelledTextsLeave) {
  Generating of;
  Scheduler scheduler(of.with, {.slots = 1, .waiting = 1});
  const Ids prompt = random_ids(5, 37, 1);
  auto active = *scheduler.submit(prompt, {.max_new_tokens = 100});
  auto waits = *scheduler.submit(prompt, {.max_new_tokens = 100});
  EXPECT_FALSE(scheduler.submit(prompt, {}).has_value());
  EXPECT_EQ(scheduler.counts().waiting, 2);
  scheduler.step();
  EXPECT_EQ(scheduler.counts().active, 1);
  waits.cancel();
  scheduler.step();
  EXPECT_EQ(waits.result.get().stop, "caller");
  auto next = *scheduler.submit(prompt, {.max_new_tokens = 3});  // there is room again
  active.cancel();
  EXPECT_EQ(finished(scheduler, next).ids.size(), 3u);
  const Generated left = active.result.get();
  EXPECT_EQ(left.stop, "caller");
  EXPECT_EQ(left.ids.size(), 2u);
  EXPECT_EQ(scheduler.counts().refused, 1);

  int told = 0;
  auto hangs_up =
      *scheduler.submit(prompt, {.max_new_tokens = 50},
                        [&](const std::string&, const Generated&) { return ++told < 4; });
  const Generated ended = finished(scheduler, hangs_up);
  EXPECT_EQ(ended.stop, "caller");
  EXPECT_EQ(ended.ids.size(), 4u);
}

TEST(Scheduler, LogProbabilitiesAreTheModels) {
  Generating of;
  const Ids prompt = random_ids(70, 37, 1);  // more than are computed at once
  GenerationOptions options;
  options.max_new_tokens = 3;
  options.sampling.temperature = 1.5;
  options.logit_bias = {{4, Real(100)}};
  options.top_logprobs = 2;
  options.prompt_logprobs = true;
  const Generated made = alone(of.with, prompt, options);
  EXPECT_EQ(made.ids, (Ids{4, 4, 4}));  // the bias decides
  ASSERT_EQ(made.prompt_logprobs.size(), prompt.size() - 1);
  ASSERT_EQ(made.logprobs.size(), 3u);
  Ids all = prompt;
  all.insert(all.end(), made.ids.begin(), made.ids.end());
  of.model.focus->mode = of.with.mode;
  const Tensor logits = of.model.logits(all).reshape({std::ssize(all), 37});
  std::vector<TokenLogprob> found = made.prompt_logprobs;
  found.insert(found.end(), made.logprobs.begin(), made.logprobs.end());
  for (std::size_t t = 0; t < found.size(); ++t) {
    const auto row = logits.span().subspan(t * 37, 37);
    double sum = 0;
    for (const Real x : row) sum += std::exp(static_cast<double>(x));
    EXPECT_EQ(found[t].id, all[t + 1]);
    EXPECT_NEAR(found[t].logprob, row[all[t + 1]] - std::log(sum), 1e-4);
    ASSERT_EQ(found[t].top.size(), 2u);
    const auto best = std::ranges::max_element(row) - row.begin();
    EXPECT_EQ(found[t].top[0].first, best);
    EXPECT_NEAR(found[t].top[0].second, row[best] - std::log(sum), 1e-4);
    EXPECT_GE(found[t].top[0].second, found[t].top[1].second);
  }
  // A prompt that is scored again is computed again.
  GenerationOptions scoring;
  scoring.max_new_tokens = 0;
  scoring.prompt_logprobs = true;
  Scheduler scheduler(of.with, {});
  for (int i = 0; i < 2; ++i) {
    auto ticket = *scheduler.submit(prompt, scoring);
    const Generated scored = finished(scheduler, ticket);
    EXPECT_TRUE(scored.ids.empty());
    EXPECT_EQ(scored.prompt_logprobs.size(), prompt.size() - 1);
    EXPECT_TRUE(scored.prompt_logprobs[0].top.empty());
    EXPECT_EQ(scored.prompt_logprobs[3].logprob, made.prompt_logprobs[3].logprob);
  }
}

TEST(Scheduler, WhatThrowsEndsOneTextAlone) {
  Generating of;
  Scheduler scheduler(of.with, {.slots = 2, .waiting = 0});
  GenerationOptions none{.max_new_tokens = 5};
  for (std::int32_t id = 0; id < 37; ++id)
    none.logit_bias.emplace_back(id, -std::numeric_limits<Real>::infinity());
  auto good = *scheduler.submit(random_ids(5, 37, 1), {.max_new_tokens = 9});
  auto bad = *scheduler.submit(random_ids(5, 37, 2), none);
  EXPECT_EQ(finished(scheduler, good).ids.size(), 9u);
  EXPECT_THROW(bad.result.get(), std::invalid_argument);
  EXPECT_EQ(scheduler.counts().active, 0);
  EXPECT_THROW(scheduler.submit({}, {}), std::invalid_argument);
  EXPECT_THROW(scheduler.submit(random_ids(129, 37, 1), {}), std::invalid_argument);
  EXPECT_THROW(scheduler.submit({1}, {.sampling = {.top_p = 2}}), std::invalid_argument);
  EXPECT_THROW(Scheduler(of.with, {.slots = 0}), std::invalid_argument);
  auto ends = *scheduler.submit(random_ids(128, 37, 1), {.max_new_tokens = 5});
  EXPECT_EQ(finished(scheduler, ends).stop, "positions");
}

TEST(Scheduler, ServesThreadsUntilItIsStopped) {
  Generating of;
  Scheduler scheduler(of.with, {.slots = 2, .waiting = 8});
  std::thread runs([&] { scheduler.run(); });
  std::vector<std::thread> clients;
  std::vector<Generated> made(4);
  for (std::size_t i = 0; i < 4; ++i)
    clients.emplace_back([&, i] {
      made[i] = scheduler.submit(several()[i].prompt, several()[i].options)->result.get();
    });
  for (std::thread& client : clients) client.join();
  auto left = *scheduler.submit({1}, {.max_new_tokens = 100000});
  scheduler.stop();
  runs.join();
  EXPECT_FALSE(scheduler.submit({1}, {}).has_value());
  const std::string stop = left.result.get().stop;
  EXPECT_TRUE(stop == "caller" || stop == "positions") << stop;
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_EQ(made[i].ids, alone(of.with, several()[i].prompt, several()[i].options).ids);
}

}  // namespace
}  // namespace focus
