#include "data/settings/sweep.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "autograd/base/check.h"
#include "data/files/json_reader.h"

namespace focus {
namespace {

using Kind = ConfigNode::Kind;

std::string text_of(const ConfigNode& node) {
  if (node.kind != Kind::kList) return node.text;
  std::vector<std::string> items;
  for (const ConfigNode& item : node.items) items.push_back(text_of(item));
  return fmt::format("[{}]", fmt::join(items, ", "));
}

std::string last_part(const std::string& key) { return key.substr(key.rfind('.') + 1); }

}  // namespace

std::vector<SweptKey> read_sweep(const ConfigNode& map, std::vector<ConfigProblem>& problems) {
  std::vector<SweptKey> axes;
  if (map.kind != Kind::kMap && map.kind != Kind::kNull)
    problems.push_back({map.line, fmt::format("sweep: expected lines of `key: [value, value]`")});
  for (const ConfigNode::Entry& entry : map.entries) {
    if (entry.value.kind != Kind::kList || entry.value.items.empty())
      problems.push_back(
          {entry.line, fmt::format("sweep: {}: expected a list such as [a, b] of its "
                                   "values, got something else or an empty one",
                                   shown(entry.key))});
    else
      axes.push_back({entry.key, entry.value.items});
  }
  return axes;
}

std::vector<std::vector<SweptSetting>> sweep_product(const std::vector<SweptKey>& axes,
                                                     std::size_t most) {
  std::vector<std::vector<SweptSetting>> all = {{}};
  for (const SweptKey& axis : axes) {
    std::vector<std::vector<SweptSetting>> longer;
    for (const auto& settings : all)
      for (const ConfigNode& value : axis.values) {
        longer.push_back(settings);
        longer.back().push_back({axis.key, value});
      }
    all = std::move(longer);
    check(all.size() <= most, "sweep: expected at most {} combinations, got more", most);
  }
  return all;
}

std::string sweep_label(const std::string& name, const std::vector<SweptSetting>& settings) {
  std::string label = name;
  for (const SweptSetting& setting : settings) {
    const auto alike = std::ranges::count(settings, last_part(setting.key),
                                          [](const SweptSetting& s) { return last_part(s.key); });
    label += fmt::format(", {}={}", alike > 1 ? setting.key : last_part(setting.key),
                         text_of(setting.value));
  }
  return label;
}

}  // namespace focus
