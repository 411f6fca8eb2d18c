#include "focus/method/grouping/grouping.h"

#include <algorithm>
#include <stdexcept>

#include "autograd/base/check.h"
#include "focus/method/documents.h"

namespace focus {

// The table: a grouping is one file that defines `GroupingKind NAME_grouping()`, and a line here.
GroupingKind token_grouping();
GroupingKind key_grouping();

namespace {

std::vector<GroupingKind>& table() {
  static std::vector<GroupingKind> kinds = {token_grouping(), key_grouping()};
  return kinds;
}

std::vector<std::string_view> grouping_names() {
  std::vector<std::string_view> names;
  for (const GroupingKind& kind : grouping_kinds()) names.push_back(kind.name);
  return names;
}

}  // namespace

const std::vector<GroupingKind>& grouping_kinds() { return table(); }

void add_grouping(GroupingKind kind) {
  check(std::ranges::count(table(), kind.name, &GroupingKind::name) == 0,
        "there is a grouping {} already", kind.name);
  table().push_back(std::move(kind));
}

const GroupingKind& grouping_kind(const FocusConfig& config) {
  const auto found = std::ranges::find(grouping_kinds(), config.grouping.name, &GroupingKind::name);
  check(found != grouping_kinds().end(), "focus.grouping: unknown grouping {}",
        config.grouping.name);
  return *found;
}

std::vector<SettingsSection> grouping_sections() {
  std::vector<SettingsSection> sections;
  for (const GroupingKind& kind : grouping_kinds())
    sections.push_back({std::string(kind.name), std::string(kind.help), kind.defaults});
  return sections;
}

void read_value(const ConfigNode& node, const Range&, GroupingName& value) {
  const std::vector<std::string_view> names = grouping_names();
  value.name = names[read_choice(node, names)];
}
std::string value_text(const GroupingName& value) { return value.name; }
std::string type_text(const GroupingName&) { return choices_text(grouping_names()); }

Variable Grouping::summary_bias(Index, Index kv_heads) const {
  return Variable(Tensor::zeros({kv_heads, num_groups()}));
}

Routing Grouping::route(const MechanismInputs& in, Balance balance) {
  const GroupIds found = group_ids(in, balance);
  check(found.heads == 1, "grouping {}: it groups keys, not tokens", kind());
  const Index batch = in.h.dim(0), seq_len = in.h.dim(1);
  constexpr double kNever = -1000;  // e to it is 0
  Tensor g = Tensor::zeros({batch, seq_len, num_groups()});
  auto logits = std::make_shared<std::vector<double>>(g.size(), kNever);
  for (std::size_t token = 0; token < found.ids.size(); ++token) {
    const std::size_t place =
        token * static_cast<std::size_t>(num_groups()) + std::size_t{found.ids[token]};
    g.data()[place] = 1;
    (*logits)[place] = 0;
  }
  std::vector<Index> starts = sequence_starts(in);
  return {.assignments = Variable(g),
          .logits = logits,
          .potentials = std::vector<double>((starts.size() - 1) * num_groups(), 0.0),
          .starts = std::move(starts)};
}

GroupShares Grouping::shares(const MechanismInputs& in, Balance balance) {
  GroupIds found = group_ids(in, balance);
  GroupShares one{
      .heads = found.heads, .groups = num_groups(), .ids = std::move(found.ids), .shares = {}};
  one.shares.assign(one.ids.size() * num_groups(), 0);
  for (std::size_t row = 0; row < one.ids.size(); ++row)
    one.shares[row * num_groups() + one.ids[row]] = 1;
  return one;
}

void Grouping::fit(Index, const Tensor&, std::uint64_t) {
  throw std::logic_error("this grouping cannot be fitted");
}

void Grouping::add_statistics(Index, const GroupIds& last, GroupStatistics& to) const {
  to.add_sizes(last.ids, last.heads, num_groups());
}

std::pair<std::string, Tensor> Grouping::last_groups(Index, const GroupIds& last) const {
  Tensor group_ids({std::ssize(last.ids) / last.heads, last.heads});
  std::ranges::copy(last.ids, group_ids.data());
  return {"classes", group_ids};
}

}  // namespace focus
