#include "focus/generation/sequence_cache.h"

#include <gtest/gtest.h>

#include <deque>

#include "focus/generation/generator.h"
#include "tests/support/compare.h"
#include "tests/support/tiny_focus.h"

namespace focus {
namespace {

using Kind = AttentionKind;
using Part = CachedDecoder::Part;
using Ids = std::vector<std::int32_t>;

/// A sequence of some pieces, each of which goes through the decoder in one pass.
struct Sequence {
  Ids ids;
  std::vector<std::size_t> pieces;
  std::size_t joins = 0;  // the first pass with a piece of it
  std::span<const std::int32_t> piece(std::size_t pass) const {
    if (pass < joins || pass - joins >= pieces.size()) return {};
    std::size_t begin = 0;
    for (std::size_t i = 0; i < pass - joins; ++i) begin += pieces[i];
    return std::span(ids).subspan(begin, pieces[pass - joins]);
  }
};
std::vector<Sequence> sequences() {
  std::vector<Sequence> all = {{{}, {20, 1, 1, 1, 1}, 0},  // leaves first
                               {{}, {1, 1, 1, 7, 1, 1, 1, 1}, 0},
                               {{}, {30, 5, 1, 1, 1, 1}, 2}};  // joins later
  for (std::size_t i = 0; i < all.size(); ++i) all[i].ids = random_ids(60, 37, 7 + i);
  return all;
}

/// The rows of each sequence by passes, those of all sequences together or each alone.
std::vector<std::vector<Tensor>> rows_of(TinyFocus& model, const AttentionSpec& mode,
                                         bool together) {
  const NoGrad guard;
  CachedDecoder decoder(model.decoder, &*model.focus);
  const std::vector<Sequence> all = sequences();
  std::deque<SequenceCache> caches;
  for (std::size_t i = 0; i < all.size(); ++i) caches.push_back(decoder.cache(mode));
  std::vector<std::vector<Tensor>> rows(all.size());
  for (std::size_t pass = 0; pass < 10; ++pass) {
    std::vector<Part> parts;
    std::vector<std::size_t> members;
    const auto run = [&] {
      if (parts.empty()) return;
      const Tensor hidden = decoder.hidden_states(parts);
      Index begin = 0;
      for (std::size_t p = 0; p < parts.size(); ++p) {
        const Index count = std::ssize(parts[p].ids), width = hidden.cols();
        rows[members[p]].push_back(
            Tensor::from({count, width}, hidden.span().subspan(begin * width, count * width)));
        begin += count;
      }
      parts.clear();
      members.clear();
    };
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (const auto ids = all[i].piece(pass); !ids.empty()) {
        parts.push_back({.cache = &caches[i], .ids = ids});
        members.push_back(i);
      }
      if (!together) run();
    }
    run();
  }
  return rows;
}

TEST(CachedDecoder, SequencesTogetherGetTheRowsThatEachGetsAlone) {
  for (const std::string& type : family_names())
    for (const AttentionSpec& mode : cached_modes()) {
      TinyFocus model(type);
      const auto together = rows_of(model, mode, true), alone = rows_of(model, mode, false);
      for (std::size_t i = 0; i < alone.size(); ++i) {
        ASSERT_EQ(together[i].size(), sequences()[i].pieces.size());
        for (std::size_t pass = 0; pass < alone[i].size(); ++pass)
          EXPECT_LE(relative_difference(together[i][pass], alone[i][pass]), tolerance(2e-5, 1e-10))
              << type << ", " << mode.name() << ", sequence " << i << ", pass " << pass;
      }
    }
}

TEST(CachedDecoder, ASecondCacheTakesTheKeysAndIsNotRead) {
  for (const AttentionSpec& mode : cached_modes()) {
    TinyFocus model("llama");
    const NoGrad guard;
    CachedDecoder decoder(model.decoder, &*model.focus);
    const auto ids = random_ids(80, 37, 7);
    SequenceCache dense = decoder.cache({.kind = Kind::dense}), beside = dense;
    SequenceCache groups = decoder.cache(mode);
    Tensor expected, got;
    // So many that some wait to be taken together, and these and others are.
    for (const auto& [begin, count] :
         {std::pair(0, 25), std::pair(25, 1), std::pair(26, 35), std::pair(61, 4)}) {
      const auto next = std::span(ids).subspan(begin, count);
      expected = decoder.hidden_states(std::array{Part{&dense, next}});
      got = decoder.hidden_states(std::array{Part{&beside, next, &groups}});
      EXPECT_TRUE(same_bits(got, expected)) << mode.name();
    }
    for (SequenceCache* cache : {&dense, &groups}) cache->truncate(63);
    EXPECT_EQ(groups.size(), 63);
    // What it holds are the keys of dense attention's pass: another cache that took them says so.
    SequenceCache again = decoder.cache(mode), third = decoder.cache({.kind = Kind::dense});
    decoder.hidden_states(std::array{Part{&third, std::span(ids).first(63), &again}});
    const auto after = std::span(ids).subspan(63, 1);
    EXPECT_LE(relative_difference(decoder.hidden_states(std::array{Part{&groups, after}}),
                                  decoder.hidden_states(std::array{Part{&again, after}})),
              tolerance(2e-5, 1e-10))
        << mode.name();
    EXPECT_THROW(decoder.hidden_states(std::array{Part{&dense, after, &groups}}),
                 std::invalid_argument);  // of another length
  }
}

TEST(CachedDecoder, TextsWithOtherAnglesGoInAPassOfTheirOwn) {
  const ModelConfig config = tiny_longrope();
  TinyFocus model(config);
  const NoGrad guard;
  for (const AttentionSpec& mode : cached_modes()) {
    CachedDecoder decoder(model.decoder, &*model.focus);
    const auto ids = random_ids(60, 37, 7);
    SequenceCache early = decoder.cache(mode), late = early, crosses = early;
    const auto first = [&](Index n) { return std::span(ids).first(n); };
    const Tensor prompts = decoder.hidden_states(
        std::array{Part{&early, first(10)}, Part{&late, first(40)}, Part{&crosses, first(29)}});
    EXPECT_EQ(prompts.rows(), 79);
    const auto next = [&](Index at, Index n) { return std::span(ids).subspan(at, n); };
    const Tensor rows = decoder.hidden_states(std::array{
        Part{&early, next(10, 1)}, Part{&late, next(40, 1)}, Part{&crosses, next(29, 2)}});
    const auto whole = [&](Index n) {
      Generator generator(model.decoder, &*model.focus, mode, std::nullopt);
      return generator.next_logits(first(n));
    };
    const auto row = [&](Index i) {
      const Index width = rows.cols();
      const Tensor one = Tensor::from({1, width}, rows.span().subspan(i * width, width));
      return model.decoder.logits(one).value().reshape({37});
    };
    for (const auto& [i, length] : {std::pair(0, 11), std::pair(1, 41), std::pair(3, 31)})
      EXPECT_LE(relative_difference(row(i), whole(length)), tolerance(2e-5, 1e-10))
          << mode.name() << ", " << length;
    EXPECT_EQ(crosses.size(), 31);
  }
}

TEST(CachedDecoder, LeavesTheDecoderAsItWas) {
  TinyFocus model("llama");
  const auto ids = random_ids(30, 37, 7);
  const NoGrad guard;
  const Tensor before = model.decoder.hidden_states(ids, 1).value();
  CachedDecoder decoder(model.decoder, &*model.focus);
  SequenceCache cache = decoder.cache({.kind = Kind::dense});
  EXPECT_FALSE(same_bits(decoder.hidden_states(std::array{Part{&cache, ids}}), before));
  EXPECT_TRUE(same_bits(model.decoder.hidden_states(ids, 1).value(), before));
}

TEST(CachedDecoder, RejectsWhatCannotGenerate) {
  TinyFocus model("llama", tiny_focus(Balance::sequence));
  const auto make = [&](FocusModel* focus, const AttentionSpec& mode) {
    CachedDecoder(model.decoder, focus).cache(mode);
  };
  EXPECT_THROW(make(&*model.focus, {.kind = Kind::soft}), std::invalid_argument);
  EXPECT_THROW(make(&*model.focus, {.kind = Kind::hard, .balance = Balance::sequence}),
               std::invalid_argument);
  EXPECT_THROW(make(nullptr, {.kind = Kind::hard}), std::invalid_argument);
}

TEST(CachedDecoder, APassThatThrowsLeavesEmptyCaches) {
  TinyFocus model("gpt2");
  const auto ids = random_ids(129, 37, 7);
  CachedDecoder decoder(model.decoder, &*model.focus);
  SequenceCache cache = decoder.cache({.kind = Kind::dense}), other = cache;
  const auto pass = [&](SequenceCache& of, std::span<const std::int32_t> tokens) {
    return decoder.hidden_states(std::array{Part{&of, tokens}, Part{&other, tokens}});
  };
  EXPECT_THROW(pass(cache, ids), std::invalid_argument);  // it would record a graph
  const NoGrad guard;
  EXPECT_THROW(pass(cache, {}), std::invalid_argument);
  EXPECT_THROW(pass(other, std::span(ids).first(3)), std::invalid_argument);  // twice
  EXPECT_EQ(other.size(), 0);
  pass(cache, std::span(ids).first(3));
  EXPECT_EQ(cache.size(), 3);
  EXPECT_THROW(pass(cache, std::span(ids).subspan(3)), std::invalid_argument);  // beyond positions
  EXPECT_EQ(cache.size(), 0);
  EXPECT_EQ(other.size(), 0);
  EXPECT_EQ(pass(cache, std::span(ids).first(128)).rows(), 256);
  EXPECT_THROW(model.decoder.hidden_states(std::span(ids).first(1), 1, 5), std::invalid_argument);
  EXPECT_THROW(model.decoder.hidden_states(std::span(ids).first(1), 1, -1), std::invalid_argument);
  EXPECT_THROW(model.decoder.hidden_states(std::span(ids).first(1), 1, 0, {.first_positions = {5}}),
               std::invalid_argument);
}

}  // namespace
}  // namespace focus
