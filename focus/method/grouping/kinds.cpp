#include <algorithm>

#include "autograd/base/check.h"
#include "focus/method/grouping/grouping.h"

// The table of groupings. A grouping is one file that defines `GroupingKind <name>_grouping()`, and
// its line here.
namespace focus {

GroupingKind token_grouping();
GroupingKind key_grouping();
GroupingKind hash_grouping();

const std::vector<GroupingKind>& grouping_kinds() {
  static const std::vector<GroupingKind> kinds = {
      token_grouping(),
      key_grouping(),
      hash_grouping(),
  };
  return kinds;
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

namespace {

std::vector<std::string_view> grouping_names() {
  std::vector<std::string_view> names;
  for (const GroupingKind& kind : grouping_kinds()) names.push_back(kind.name);
  return names;
}

}  // namespace

void read_value(const ConfigNode& node, const Range&, GroupingName& value) {
  const std::vector<std::string_view> names = grouping_names();
  value.name = names[read_choice(node, names)];
}
std::string value_text(const GroupingName& value) { return value.name; }
std::string type_text(const GroupingName&) { return choices_text(grouping_names()); }

}  // namespace focus
