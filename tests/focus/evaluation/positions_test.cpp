
#include <gtest/gtest.h>

#include "focus/evaluation/evaluation.h"
#include "tests/support/tiny_session.h"

namespace focus {
namespace {

std::string problem(const EvalSettings& settings, const std::string& family) {
  try {
    settings.for_model(tiny_loaded(family));
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(Positions, RotaryOnesGoOnWhereTheUserSaysSo) {
  EXPECT_EQ(problem({.context = 128}, "llama"), "");
  EXPECT_NE(problem({.context = 129}, "llama").find("--beyond-positions"), std::string::npos);
  EXPECT_EQ(problem({.context = 129, .beyond_positions = true}, "llama"), "");
}

TEST(Positions, LearnedOnesEnd) {
  EXPECT_EQ(problem({.context = 128, .beyond_positions = true}, "gpt2"), "");
  for (const bool beyond : {false, true}) {
    const std::string error = problem({.context = 129, .beyond_positions = beyond}, "gpt2");
    EXPECT_NE(error.find("128 positions"), std::string::npos) << error;
    EXPECT_EQ(error.find("--beyond-positions"), std::string::npos) << "no way out for it";
  }
}

TEST(Positions, WhoGoesOnIsTold) {
  EXPECT_EQ(positions_notice(tiny_loaded("llama"), 128), "");
  const std::string notice = positions_notice(tiny_loaded("llama"), 129);
  EXPECT_NE(notice.find("129 tokens"), std::string::npos) << notice;
  EXPECT_NE(notice.find("128 positions"), std::string::npos) << notice;
}

TEST(Positions, WhatStandsBeyondTheTableIsEvaluated) {
  LoadedModel model = tiny_loaded("llama");
  const EvalText text{"tiny", random_ids(300, kTinyVocabulary, 8), 300};
  const EvalSettings settings =
      EvalSettings{.context = 300, .beyond_positions = true}.for_model(model);
  TokenLosses far, near;
  evaluate(*model.decoder, text, settings, {.losses = &far});
  evaluate(*model.decoder, text, {.context = 128, .stride = 64}, {.losses = &near});
  ASSERT_EQ(far.nats.size(), 299U);
  for (std::size_t i = 0; i < 127; ++i) EXPECT_NEAR(far.nats[i], near.nats[i], 1e-4) << i;
  for (const double nats : far.nats) EXPECT_TRUE(std::isfinite(nats));
}

}  // namespace
}  // namespace focus
