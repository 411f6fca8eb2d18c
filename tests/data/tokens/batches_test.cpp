#include "data/tokens/batches.h"

#include <gmock/gmock.h>

#include <numeric>

#include "tests/support/temp_folder.h"

namespace focus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

/// Ids 0, 1, 2, ...: an id says where it comes from.
TokenView counting(std::int32_t count) {
  Ids tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 0);
  return TokenView(TokenFile::from_tokens(tokens, {}, std::max(count, 1)));
}

TEST(Batches, SequentialWindowsDoNotOverlap) {
  Batches batches(counting(11), {.batch = 2, .context = 3, .shuffle = false});
  EXPECT_EQ(batches.num_windows(), 3);
  const Batch first = batches.next();
  EXPECT_THAT(first.ids, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(first.batch, 2);
  EXPECT_EQ(first.context, 3);
  EXPECT_THAT(batches.next().ids, ElementsAre(6, 7, 8, 0, 1, 2));  // into the next epoch
  EXPECT_EQ(batches.state(), (BatchState{0, 1, 1, 3}));
  EXPECT_THAT(batches.windows(1, 2).ids, ElementsAre(3, 4, 5, 6, 7, 8));
  EXPECT_THROW(batches.windows(2, 2), std::invalid_argument);
}

Ids epoch_of(Batches& batches) {
  Ids firsts;
  for (Index i = 0; i < batches.num_windows(); ++i) firsts.push_back(batches.next().ids[0]);
  return firsts;
}

TEST(Batches, ShuffledEpochsHoldEveryWindowOnce) {
  const BatchOptions options{.batch = 1, .context = 4, .seed = 5};
  Batches batches(counting(200), options);
  const Ids first = epoch_of(batches), second = epoch_of(batches);
  EXPECT_NE(first, second);
  for (Ids epoch : {first, second}) {
    EXPECT_FALSE(std::is_sorted(epoch.begin(), epoch.end()));
    std::sort(epoch.begin(), epoch.end());
    for (std::size_t i = 0; i < epoch.size(); ++i) EXPECT_EQ(epoch[i], static_cast<int>(4 * i));
  }
  Batches again(counting(200), options);
  EXPECT_EQ(epoch_of(again), first);
  Batches other(counting(200), {.batch = 1, .context = 4, .seed = 6});
  EXPECT_NE(epoch_of(other), first);
}

TEST(Batches, GoesOnFromASavedStateWithTheSameBatches) {
  for (const bool shuffle : {false, true}) {
    const BatchOptions options{.batch = 3, .context = 4, .shuffle = shuffle, .seed = 9};
    Batches whole(counting(60), options);
    for (int done = 0; done < 12; ++done) {
      const BatchState state = whole.state();
      Batches resumed(counting(60), {.batch = 3, .context = 4, .shuffle = shuffle, .seed = 1});
      resumed.restore(state);
      EXPECT_EQ(resumed.state(), state);
      Batches ahead = whole;
      for (int i = 0; i < 7; ++i) EXPECT_EQ(resumed.next().ids, ahead.next().ids);
      whole.next();
    }
  }
}

TEST(Batches, RefusesStatesOfOtherData) {
  Batches batches(counting(60), {.batch = 1, .context = 4});
  EXPECT_THAT(error_of([&] { batches.restore({0, 0, 0, 14}); }), HasSubstr("14 windows"));
  EXPECT_THROW(batches.restore({0, 0, 16, 15}), std::invalid_argument);
  EXPECT_THROW(batches.restore({0, -1, 0, 15}), std::invalid_argument);
}

TEST(Batches, RefusesWhatCannotBeTrainedOn) {
  EXPECT_THAT(error_of([] { Batches(counting(9), {.batch = 1, .context = 10}); }),
              HasSubstr("9 tokens in 1 documents do not fill one context of 10"));
  EXPECT_THROW(Batches(counting(9), {.batch = 0, .context = 4}), std::invalid_argument);
  EXPECT_THROW(Batches(counting(9), {.batch = 1, .context = 1}), std::invalid_argument);
  EXPECT_THAT(
      error_of([] { Batches(counting(100000), {.batch = 1, .context = 4, .vocab_size = 99999}); }),
      HasSubstr("token 99999 is 99999, outside the model's vocabulary of 99999"));
  // A tokenizer may know more ids than the text uses.
  const TokenView small(TokenFile::from_tokens(Ids{1, 2, 3, 4}, {}, 1000));
  EXPECT_EQ(Batches(small, {.batch = 1, .context = 4, .vocab_size = 5}).num_windows(), 1);
}

}  // namespace
}  // namespace focus
