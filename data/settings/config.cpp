#include "data/settings/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <span>
#include <stdexcept>

#include "autograd/base/check.h"
#include "data/files/input_file.h"
#include "data/files/json_reader.h"
#include "data/files/utf8.h"

namespace focus {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replace = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replace, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

namespace {

using Kind = ConfigNode::Kind;

constexpr std::size_t kMaxBytes = 1'000'000;

std::string_view last_part(std::string_view key) { return key.substr(key.rfind('.') + 1); }

std::string shown_node(const ConfigNode& node) {
  if (node.kind != Kind::kList) return node.text;
  std::vector<std::string> items;
  for (const ConfigNode& item : node.items) items.push_back(shown_node(item));
  return fmt::format("[{}]", fmt::join(items, ", "));
}

/// Applies the nodes of one source to the fields and notes what does not fit.
class ConfigReader {
 public:
  explicit ConfigReader(const std::vector<ConfigField>& fields) : fields_(fields) {
    for (const ConfigField& field : fields) by_key_[field.key] = &field;
  }

  void read_group(const ConfigNode& map, const std::string& prefix,
                  std::vector<ConfigProblem>& problems) const {
    for (const ConfigNode::Entry& entry : map.entries) {
      const std::string key = prefix + entry.key;
      try {
        check(entry.key.find('.') == std::string::npos, "a dotted key, write nested groups");
        read_entry(key, entry.value, problems);
      } catch (const std::invalid_argument& error) {
        problems.push_back({entry.line, fmt::format("{}: {}", shown(key), error.what())});
      }
    }
  }

 private:
  void read_entry(const std::string& key, const ConfigNode& value,
                  std::vector<ConfigProblem>& problems) const {
    if (value.kind == Kind::kRefused) return;
    const auto found = by_key_.find(key);
    // Looking for what was meant takes long: with so many wrong keys this is another file.
    constexpr std::size_t kMaxSuggestions = 20;
    if (found == by_key_.end())
      check(false, "unknown key{}", problems.size() < kMaxSuggestions ? suggestion(key) : "");
    const ConfigField& field = *found->second;
    if (field.read) {
      field.read(value);
    } else if (value.kind == Kind::kMap) {
      read_group(value, key + ".", problems);
    } else if (value.kind != Kind::kNull) {  // null: a heading whose keys are all left out
      refuse_value("a group of keys", value, fmt::format("it holds keys such as {}", child(key)));
    }
  }

  std::string child(const std::string& group) const {
    const auto found = std::ranges::find_if(
        fields_, [&](const ConfigField& f) { return f.text && f.key.starts_with(group + "."); });
    return found == fields_.end() ? group : found->key;
  }

  /// The keys whose help has the words of `name`: optim.lr for learning_rate.
  std::vector<std::string> explained_as(std::string_view name) const {
    std::string words(name);
    std::ranges::replace(words, '_', ' ');
    std::vector<std::string> found;
    constexpr std::size_t kShortest = 4;
    if (words.size() < kShortest) return found;
    for (const ConfigField& field : fields_) {
      const std::size_t place = field.read ? field.help.find(words) : std::string::npos;
      if (place != std::string::npos && (place == 0 || field.help[place - 1] == ' '))
        found.push_back(field.key);
    }
    return found;
  }

  /// The nearest known keys, whether the spelling or the group is wrong.
  std::string suggestion(std::string_view key) const {
    if (key.size() > 100) return "";  // no slip of the hand
    std::vector<std::string> best;    // as near as each other
    std::size_t best_distance = std::max<std::size_t>(2, last_part(key).size() / 3) + 1;
    for (const ConfigField& field : fields_) {
      const std::size_t whole = edit_distance(key, field.key);
      const std::size_t part = edit_distance(last_part(key), last_part(field.key)) + 1;
      const std::size_t distance = std::min(whole, part);
      if (distance < best_distance) best.clear();
      if (distance <= best_distance - (best.empty() ? 1 : 0)) best.push_back(field.key);
      best_distance = std::min(distance, best_distance);
    }
    if (best.empty()) best = explained_as(last_part(key));
    constexpr std::size_t kMostSuggested = 3;
    if (best.size() > kMostSuggested) best.erase(best.begin() + kMostSuggested, best.end());
    return best.empty() ? "; --help lists the known ones"
                        : fmt::format("; did you mean {}?", fmt::join(best, " or "));
  }

  const std::vector<ConfigField>& fields_;
  std::map<std::string, const ConfigField*, std::less<>> by_key_;
};

/// The value of an override: YAML where it starts like a list or quoted text, else the bare word.
ConfigNode override_value(const std::string& text, std::vector<ConfigProblem>& problems) {
  if (text.find_first_of("['\"") == 0) return parse_config_yaml(text, problems);
  return {.kind = text == "null" || text == "~" ? Kind::kNull : Kind::kScalar,
          .text = text,
          .from_override = true,
          .entries = {}};
}

}  // namespace

ConfigNode config_override_tree(const std::string& text, std::vector<ConfigProblem>& problems) {
  const std::size_t equals = text.find('=');
  const bool sound = is_valid_utf8(text), is_pair = equals != std::string::npos && equals > 0;
  if (!sound || !is_pair) {
    problems.push_back({0, sound ? "expected key=value" : "expected UTF-8 text, got other bytes"});
    return {.kind = Kind::kMap, .entries = {}};
  }
  return nested_setting(text.substr(0, equals), override_value(text.substr(equals + 1), problems));
}

ConfigNode nested_setting(const std::string& key, const ConfigNode& value) {
  const std::size_t dot = key.find('.');
  const ConfigNode inner =
      dot == std::string::npos ? value : nested_setting(key.substr(dot + 1), value);
  return {
      .kind = Kind::kMap, .line = value.line, .entries = {{key.substr(0, dot), value.line, inner}}};
}

void read_config_map(const std::vector<ConfigField>& fields, const ConfigNode& map,
                     std::vector<ConfigProblem>& problems) {
  ConfigReader(fields).read_group(map, "", problems);
}

void read_config_fields(const std::vector<ConfigField>& fields, const std::string& text,
                        const std::string& source, const std::vector<std::string>& overrides) {
  const ConfigReader reader(fields);
  std::vector<std::string> lines;

  std::vector<ConfigProblem> problems;
  ConfigNode root = parse_config_yaml(text, problems);
  if (root.kind == Kind::kMap) {
    reader.read_group(root, "", problems);
  } else {
    problems.push_back({root.line, "expected lines of `key: value`, got a single value or a list"});
  }
  std::ranges::stable_sort(problems, {}, &ConfigProblem::line);
  for (const ConfigProblem& problem : problems)
    lines.push_back(fmt::format("{}:{}: {}", source, problem.line, problem.text));

  for (const std::string& item : overrides) {
    std::vector<ConfigProblem> own;
    const ConfigNode tree = config_override_tree(item, own);
    if (own.empty()) reader.read_group(tree, "", own);
    for (const ConfigProblem& problem : own)
      lines.push_back(fmt::format("override {}: {}", shown(item), problem.text));
  }
  if (!lines.empty()) fail("{}", fmt::join(lines, "\n"));
}

std::string read_config_file(const std::string& path) {
  InputFile file(path, InputFile::Pipes::read);
  std::string text(kMaxBytes + 1, '\0');
  text.resize(file.read(std::as_writable_bytes(std::span(text))));
  if (text.size() > kMaxBytes)
    fail("{}: expected a config of at most 1 MB, got more; is this the right file?", path);
  if (text.empty()) fail("{}: the file is empty; expected a config, lines of \"key: value\"", path);
  return text;
}

std::string place_of_setting(std::string_view problem, const std::string& text,
                             const std::string& source, const std::vector<std::string>& overrides) {
  const std::string key(problem.substr(0, problem.find_first_of(" :,")));
  for (auto item = overrides.rbegin(); item != overrides.rend(); ++item)
    if (item->starts_with(key + "=")) return fmt::format("override {}: ", shown(*item));
  std::vector<ConfigProblem> none;
  const ConfigNode root = parse_config_yaml(text, none);
  const ConfigNode* map = &root;
  int line = 0;
  for (std::size_t begin = 0; begin <= key.size();) {
    const std::size_t end = std::min(key.find('.', begin), key.size());
    const std::string part = key.substr(begin, end - begin);
    const auto found = std::ranges::find(map->entries, part, &ConfigNode::Entry::key);
    if (found == map->entries.end()) return "";
    line = found->line;
    map = &found->value;
    begin = end + 1;
  }
  return fmt::format("{}:{}: ", source, line);
}

std::string dump_config_fields(const std::vector<ConfigField>& fields, bool with_help) {
  std::string text;
  for (const ConfigField& field : fields) {
    const auto depth = static_cast<std::size_t>(std::ranges::count(field.key, '.'));
    text += fmt::format("{:{}}{}:", "", 2 * depth, last_part(field.key));
    if (field.text) text += fmt::format(" {}", field.text());
    if (with_help && !field.help.empty()) text += fmt::format("  # {}", field.help);
    text += '\n';
  }
  return text;
}

std::string describe_config_fields(const std::vector<ConfigField>& fields) {
  std::size_t width = 0;
  for (const ConfigField& field : fields) width = std::max(width, field.key.size());
  std::string text;
  for (const ConfigField& field : fields) {
    if (!field.read) {
      text += fmt::format("{:<{}}  {}\n", field.key, width, field.help);
      continue;
    }
    const std::string limits = range_text(field.range);
    text += fmt::format("{:<{}}  ({}{}{}, default {})  {}\n", field.key, width, field.type,
                        limits.empty() ? "" : ", ", limits, field.text(), field.help);
  }
  return text;
}

nlohmann::ordered_json settings_json(const std::vector<ConfigField>& settings) {
  nlohmann::ordered_json json;
  for (const ConfigField& field : settings) {
    nlohmann::ordered_json& value =
        json[nlohmann::ordered_json::json_pointer("/" + replaced(field.key, ".", "/"))];
    if (!field.text) {  // a group
      value = nlohmann::ordered_json::object();
      continue;
    }
    const std::string text = field.text();
    value = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (value.is_discarded()) value = text;  // a plain word
  }
  return json;
}

Sweep read_sweep(const ConfigNode& map, std::vector<ConfigProblem>& problems) {
  Sweep keys;
  if (map.kind != Kind::kMap && map.kind != Kind::kNull)
    problems.push_back({map.line, fmt::format("sweep: expected lines of `key: [value, value]`")});
  for (const ConfigNode::Entry& entry : map.entries) {
    if (entry.value.kind != Kind::kList || entry.value.items.empty())
      problems.push_back(
          {entry.line, fmt::format("sweep: {}: expected a list such as [a, b] of its "
                                   "values, got something else or an empty one",
                                   shown(entry.key))});
    else
      keys.push_back(entry);
  }
  return keys;
}

std::vector<Sweep> sweep_product(const Sweep& keys, std::size_t most) {
  std::vector<Sweep> all = {{}};
  for (const ConfigNode::Entry& key : keys) {
    std::vector<Sweep> longer;
    for (const Sweep& settings : all)
      for (const ConfigNode& value : key.value.items) {
        longer.push_back(settings);
        longer.back().push_back({key.key, value.line, value});
      }
    all = std::move(longer);
    check(all.size() <= most, "sweep: expected at most {} combinations, got more", most);
  }
  return all;
}

std::string sweep_label(const std::string& name, const Sweep& settings) {
  std::string label = name;
  for (const auto& [key, line, value] : settings) {
    const auto alike = std::ranges::count(settings, last_part(key),
                                          [](const auto& other) { return last_part(other.key); });
    label += fmt::format(", {}={}", alike > 1 ? key : last_part(key), shown_node(value));
  }
  return label;
}

}  // namespace focus
