#include <gtest/gtest.h>

#include "focus/evaluation/scores/requests.h"
#include "tests/support/byte_model.h"

namespace focus {
namespace {

TokenIds bytes(std::string_view text) {
  TokenIds ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

TEST(Encoding, SpaceAtTheEndOfAContextIsScored) {
  using Pair = std::pair<std::string, std::string>;
  EXPECT_EQ(move_trailing_space("Answer: ", "yes"), Pair("Answer:", " yes"));
  EXPECT_EQ(move_trailing_space("a b\n\t", "c "), Pair("a b", "\n\tc "));
  EXPECT_EQ(move_trailing_space("a", " b"), Pair("a", " b"));
  EXPECT_EQ(move_trailing_space(" \n", "b"), Pair("", " \nb"));
  // As Python counts white space: a no-break space and an ideographic one, but no zero-width one.
  EXPECT_EQ(move_trailing_space("a\u00A0\u3000", "b"), Pair("a", "\u00A0\u3000b"));
  EXPECT_EQ(move_trailing_space("a\u200B", "b"), Pair("a\u200B", "b"));
}

// The example in the harness's documentation of loglikelihood_rolling.
TEST(Encoding, RollingWindowsScoreEachTokenOnceAndReachBackAsFarAsTheyCan) {
  const TokenIds tokens = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  const auto windows = rolling_windows(tokens, 99, 4);
  const std::vector<std::pair<TokenIds, TokenIds>> expected = {
      {{99}, {0, 1, 2, 3}}, {{3}, {4, 5, 6, 7}}, {{5, 6, 7}, {8, 9}}};
  ASSERT_EQ(windows.size(), expected.size());
  for (std::size_t i = 0; i < windows.size(); ++i)
    EXPECT_EQ(std::pair(windows[i].context, windows[i].continuation), expected[i]);
  for (const TokenPair& window : windows) EXPECT_EQ(window.fed(), 4);
  EXPECT_EQ(rolling_windows({7}, 99, 4).front().continuation, TokenIds{7});
  EXPECT_TRUE(rolling_windows({}, 99, 4).empty());
}

TEST(Encoding, TooLongAContextLosesItsBeginning) {
  TokenPair pair{{1, 2, 3, 4, 5}, {6, 7}};
  EXPECT_EQ(cut_left(pair, 6), 0);
  EXPECT_EQ(cut_left(pair, 4), 2);
  EXPECT_EQ(pair.context, (TokenIds{3, 4, 5}));
  EXPECT_EQ(pair.continuation, (TokenIds{6, 7}));
  EXPECT_EQ(cut_left(pair, 2), 2);
  EXPECT_EQ(pair.context, TokenIds{5});
  EXPECT_THROW(cut_left(pair, 1), std::invalid_argument);
}

TEST(RequestEncoder, SplitsAtTheLengthOfTheContextsOwnTokens) {
  const LoadedModel model = byte_model();
  const RequestEncoder encoder(model, TextStart::none);
  const TokenPair pair = encoder.pair("Q: a\n ", "b", "here");
  EXPECT_EQ(pair.context, bytes("Q: a"));
  EXPECT_EQ(pair.continuation, bytes("\n b"));
  EXPECT_EQ(encoder.pair("", "b", "here").context, TokenIds{0});
  EXPECT_EQ(encoder.pair("\n", "b", "here").context, TokenIds{0});
  EXPECT_EQ(encoder.pair("\n", "b", "here").continuation, bytes("\nb"));
  EXPECT_EQ(encoder.prompt("abcdef", 4, "here").first, bytes("cdef"));
  EXPECT_EQ(encoder.prompt("abcdef", 4, "here").second, 2);
  EXPECT_EQ(encoder.prompt("", 4, "here").first, TokenIds{0});
}

TEST(RequestEncoder, PutsWhatIsAskedForBeforeAContext) {
  const LoadedModel model = byte_model();
  for (const auto& [start, ids] :
       {std::pair(TextStart::none, bytes("ab")), std::pair(TextStart::tokenizer, bytes("ab")),
        std::pair(TextStart::document, TokenIds{0, 'a', 'b'})})
    EXPECT_EQ(RequestEncoder(model, start).pair("ab", "c", "here").context, ids);
}

TEST(RequestEncoder, RefusesWhatCannotBeScored) {
  const LoadedModel model = byte_model();
  const RequestEncoder encoder(model, TextStart::none, 8);
  EXPECT_THROW(encoder.pair("a", "", "here"), std::runtime_error);
  EXPECT_NO_THROW(encoder.pair("a", "12345678", "here"));
  EXPECT_THROW(encoder.pair("a", "123456789", "here"), std::runtime_error);
  EXPECT_THROW(encoder.rolling("", "here"), std::runtime_error);
  EXPECT_THROW(RequestEncoder(model, TextStart::none, 129), std::runtime_error);
  EXPECT_EQ(RequestEncoder(model, TextStart::none).max_length(), 128);
}

TEST(RequestEncoder, AModelWithoutBosOrEosNeedsAContext) {
  LoadedModel model = byte_model();
  ModelConfig config = model.decoder->config();
  config.bos_token_id.reset();
  model.decoder = std::make_unique<Decoder>(config);
  const RequestEncoder encoder(model, TextStart::document);
  EXPECT_EQ(encoder.pair("ab", "c", "here").context, bytes("ab"));
  EXPECT_THROW(encoder.pair("", "b", "here"), std::runtime_error);
  EXPECT_THROW(encoder.rolling("abc", "here"), std::runtime_error);
  EXPECT_THROW(encoder.prompt("", 4, "here"), std::runtime_error);
}

}  // namespace
}  // namespace focus
