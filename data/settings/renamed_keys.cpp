#include "data/settings/renamed_keys.h"

#include <algorithm>
#include <optional>

namespace focus {
namespace {

ConfigNode::Entry* find(ConfigNode& map, const std::string& key) {
  const auto found = std::ranges::find(map.entries, key, &ConfigNode::Entry::key);
  return found == map.entries.end() ? nullptr : &*found;
}

/// Takes the entry at a dotted place out of the map.
std::optional<ConfigNode::Entry> take(ConfigNode& map, const std::string& place) {
  const std::size_t dot = place.find('.');
  ConfigNode::Entry* const entry = find(map, place.substr(0, dot));
  if (entry == nullptr) return std::nullopt;
  if (dot != std::string::npos) {
    if (entry->value.kind != ConfigNode::Kind::kMap) return std::nullopt;
    auto taken = take(entry->value, place.substr(dot + 1));
    // A group that it leaves empty goes with its last key: it may be none of today's.
    if (taken && entry->value.entries.empty())
      map.entries.erase(map.entries.begin() + (entry - map.entries.data()));
    return taken;
  }
  // A group of today may have the name of a value of then.
  if (entry->value.kind == ConfigNode::Kind::kMap) return std::nullopt;
  ConfigNode::Entry taken = std::move(*entry);
  map.entries.erase(map.entries.begin() + (entry - map.entries.data()));
  return taken;
}

void put(ConfigNode& map, const std::string& place, ConfigNode::Entry entry) {
  const std::size_t dot = place.find('.');
  const std::string key = place.substr(0, dot);
  ConfigNode::Entry* found = find(map, key);
  if (dot == std::string::npos) {
    if (found != nullptr) return;
    entry.key = key;
    map.entries.push_back(std::move(entry));
    return;
  }
  if (found == nullptr) {
    map.entries.push_back({key, entry.line, {}});
    found = &map.entries.back();
    found->value.kind = ConfigNode::Kind::kMap;
  }
  if (found->value.kind == ConfigNode::Kind::kMap)
    put(found->value, place.substr(dot + 1), std::move(entry));
}

}  // namespace

void rename_keys(ConfigNode& map, std::span<const RenamedKey> keys) {
  if (map.kind != ConfigNode::Kind::kMap) return;
  std::vector<std::pair<std::string, ConfigNode::Entry>> moved;
  for (const RenamedKey& key : keys) {
    std::optional<ConfigNode::Entry> entry = take(map, key.from);
    if (!entry || key.to.empty()) continue;
    for (const auto& [then, now] : key.values)
      if (entry->value.text == then) {
        entry->value.text = now;
        break;
      }
    if (key.change != nullptr) key.change(entry->value);
    moved.emplace_back(key.to, *std::move(entry));
  }
  for (auto& [place, entry] : moved) put(map, place, std::move(entry));
}

}  // namespace focus
