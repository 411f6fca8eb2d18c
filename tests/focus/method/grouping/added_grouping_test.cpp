// A grouping that a program adds has every attention, and goes through files as the others do.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "focus/method/focus_files.h"
#include "tests/support/compare.h"
#include "tests/support/parity_grouping.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace focus {
namespace {

using Kind = AttentionKind;
constexpr Index kTokens = 40;

/// A tiny decoder with groups by parity.
struct Grouped {
  Grouped() { focus.attach(decoder); }
  Tensor run(const AttentionSpec& mode, std::span<const std::int32_t> text) {
    const NoGrad guard;
    focus.mode = mode;
    return decoder.hidden_states(text, 1).value();
  }
  Decoder decoder = tiny_decoder("llama");
  Rng rng{1};
  FocusModel focus{parity_config(), FocusShape::of(decoder.config()), rng};
  std::vector<std::int32_t> ids = random_ids(kTokens, 37, 7);
};

AttentionSpec summary(Index selected) {
  return {.kind = Kind::summary, .summary = {.block = 1, .num_selected_groups = selected}};
}

TEST(AddedGrouping, SaysTheGroupOfEachToken) {
  Grouped m;
  m.run(summary(1), m.ids);
  std::set<std::uint8_t> seen;
  for (const GroupIds& layer : m.focus.last_group_ids()) {
    ASSERT_EQ(layer.ids.size(), std::size_t{kTokens});
    EXPECT_EQ(layer.heads, 1);
    seen.insert(layer.ids.begin(), layer.ids.end());
  }
  EXPECT_EQ(seen.size(), 2u);
  // Layer 0's input is the token's alone here: equal tokens are in one group.
  const std::vector<std::int32_t> equal(kTokens, 5);
  m.run(summary(1), equal);
  const auto& first = m.focus.last_group_ids()[0].ids;
  EXPECT_EQ(std::ranges::count(first, first[0]), kTokens);
}

TEST(AddedGrouping, SoftHardAndSummaryAttentionRunAndAreCausal) {
  Grouped m;
  const Tensor dense = m.run({.kind = Kind::dense}, m.ids);
  for (const AttentionSpec& mode :
       {AttentionSpec{.kind = Kind::soft},
        AttentionSpec{.kind = Kind::hard, .top_k = 1, .gate = HardGate::drop},
        AttentionSpec{.kind = Kind::local}, summary(1)}) {
    const Tensor out = m.run(mode, m.ids);
    EXPECT_GT(relative_difference(out, dense), 1e-4) << mode.name();
    std::vector<std::int32_t> other = m.ids;
    other.back() = (other.back() + 1) % 37;
    const Tensor changed = m.run(mode, other);
    EXPECT_TRUE(std::ranges::equal(out.span().first((kTokens - 1) * 24),
                                   changed.span().first((kTokens - 1) * 24)))
        << mode.name();
  }
  // All groups read: dense. A token keeps all of its groups: so is hard attention without gate.
  EXPECT_LT(relative_difference(m.run(summary(2), m.ids), dense), 1e-5);
  EXPECT_LT(relative_difference(
                m.run({.kind = Kind::hard, .top_k = 2, .gate = HardGate::drop}, m.ids), dense),
            1e-5);
}

TEST(AddedGrouping, GoesThroughAStoreWithItsOwnSettingsOnly) {
  const TempFolder folder;
  const auto path = folder.path() / "parity.h5";
  Rng rng(1);
  FocusModel focus(parity_config(), {.hidden_size = 24, .num_layers = 3}, rng);
  {
    StoreWriter store(path, "adapter");
    focus.write(store, "a base");
    store.commit();
  }
  const std::string text = StoreReader(path).text("/focus/config.yaml");
  EXPECT_NE(text.find("grouping: parity"), std::string::npos) << text;
  EXPECT_NE(text.find("parity:\n  first: 0"), std::string::npos) << text;
  EXPECT_EQ(text.find("temperature"), std::string::npos) << text;
  EXPECT_EQ(text.find("fit_step"), std::string::npos) << text;
  const auto back = read_focus(open_focus(path));
  EXPECT_EQ(back->grouping().kind(), "parity");
  EXPECT_EQ(open_focus(path).num_parameters(), 0);
}

TEST(AddedGrouping, RefusesWhatIsOfTrainedRoutingAndANameThatIsTaken) {
  FocusConfig config = parity_config();
  EXPECT_NO_THROW(config.validate());
  config.ablations.balance_loss = 1;
  EXPECT_THROW(config.validate(), std::invalid_argument);
  config = parity_config();
  config.num_groups = kMaxGroups + 1;
  EXPECT_THROW(config.validate(), std::invalid_argument);
  EXPECT_THROW(add_grouping({.name = "keys", .help = "", .defaults = ParitySettings{}}),
               std::invalid_argument);
}

}  // namespace
}  // namespace focus
