#include <gmock/gmock.h>

#include "focus/evaluation/statistics/groups_report.h"

namespace focus {
namespace {

/// As of a large model: every group has separate tokens.
GroupsReport report_of(Index layers, Index heads, Index num_groups) {
  GroupsReport report{.model = "folder/model.h5",
                      .adapter = "folder/keys.h5",
                      .attention = "summary m=8 w=32",
                      .per_head = heads > 1,
                      .context = 2048,
                      .layers = layers,
                      .heads = heads,
                      .num_groups = num_groups,
                      .pairs_attended = 0.25};
  report.text.ids.assign(num_groups * 10, 0);
  report.text.names = {"folder/text.txt"};
  const std::vector<double> row(layers, 0.5);
  report.between_layers = {std::vector(layers, row), std::vector(layers, row)};
  for (Index i = 0; i < layers * heads; ++i) {
    GroupAssignments& grouping = report.groupings.emplace_back();
    grouping.layer = i / heads;
    grouping.head = i % heads;
    auto& details = report.details.emplace_back(GroupingDetails{.layer = i / heads});
    if (heads > 1) details.head = i % heads;
    details.size_entropy = 0.9;
    details.purity.information = i == layers / 2 * heads ? 0.7 : 0.1;
    for (Index g = 0; g < num_groups; ++g) {
      auto& group = details.groups.emplace_back(GroupingDetails::Group{.size = g});
      group.categories.assign(kNumCategories, 0.5);
      for (Index k = 0; k < 8; ++k)
        group.by_lift.push_back({.text = fmt::format(" token{}of{}<", k, g)});
      group.by_confidence = group.by_lift;
    }
  }
  for (Index t = 0; t < 160; ++t)
    report.passage.tokens.push_back({" token", std::vector<int>(layers * heads, t % num_groups)});
  return report;
}

TEST(GroupsPage, BeginsWithWhatWasFoundAndAPassage) {
  const std::string page = groups_page(report_of(6, 1, 12));
  std::size_t at = page.find("<body>");
  for (const char* part :
       {"<h1>Groups of model.h5</h1>", "model.h5 with keys.h5: 120 tokens of text.txt",
        "12 groups in each of 6 layers", "25.0 % of the causal pairs",
        "A passage by the groups of layer 3", "class=\"passage\"", "tokens by lift",
        "Sizes, balance, purity", "Agreement between layers"}) {
    const std::size_t next = page.find(part, at);
    ASSERT_NE(next, page.npos) << part << " is not there, or too early";
    at = next;
  }
  // Each token of the passage has its group.
  EXPECT_THAT(page, testing::HasSubstr("<i class=g11> token</i><i class=g0> token</i>"));
}

TEST(GroupsPage, StaysBelowOneMegabyte) {
  for (const auto& [layers, heads, groups] :
       std::vector<std::array<Index, 3>>{{30, 3, 128}, {62, 1, 128}, {62, 16, 128}, {26, 1, 32}}) {
    const std::string page = groups_page(report_of(layers, heads, groups));
    EXPECT_LT(page.size(), 1'000'000) << layers << " layers, " << heads << " heads";
    const std::string most = fmt::format("The 32 largest of {} groups", groups);
    EXPECT_EQ(page.find(most) != page.npos, groups > 32);
  }
}

}  // namespace
}  // namespace focus
