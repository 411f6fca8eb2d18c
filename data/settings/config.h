#pragma once

#include <any>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "data/settings/config_values.h"

/// A config: a YAML file of settings, plus `a.b=c` overrides, read strictly into a struct.
///
/// A struct lists its members once, in `void visit(auto&& f)`:
///   f("num_groups", num_groups, "groups K", {1, 64});   // limits are optional, both inclusive
///   f("focus", focus, "sparse attention");              // a struct with a visit of its own
/// A member is a bool, int, std::int64_t, std::uint64_t, float, double, std::string or an enum with
/// enum_names; or a std::vector, or a std::optional (null), of these.
namespace focus {

/// One line of a visit, its type hidden. A group (a nested struct) has no `read`.
struct ConfigField {
  std::string key;   // dotted, from the root
  std::string help;  // one line
  std::string type;
  Range range;
  std::function<void(const ConfigNode&)> read;  // throws what read_value throws
  std::function<std::string()> text;            // the value now, as YAML
};

class ConfigFieldCollector {
 public:
  ConfigFieldCollector(std::vector<ConfigField>& fields, std::string prefix)
      : fields_(fields), prefix_(std::move(prefix)) {}

  template <class T>
  void operator()(const std::string& name, T& member, const std::string& help = "",
                  Range range = {}) {
    const std::string key = prefix_ + name;
    if constexpr (requires(ConfigFieldCollector & f) { member.visit(f); }) {
      fields_.push_back({key, help, "group", range, nullptr, nullptr});
      member.visit(ConfigFieldCollector(fields_, key + "."));
    } else {
      fields_.push_back(
          {key, help, type_text(member), range,
           [&member, range](const ConfigNode& node) { read_value(node, range, member); },
           [&member] { return value_text(member); }});
    }
  }

 private:
  std::vector<ConfigField>& fields_;
  std::string prefix_;
};

/// All fields of a config in the order of its visits; they point into `config`.
template <class T>
std::vector<ConfigField> config_fields(T& config) {
  std::vector<ConfigField> fields;
  config.visit(ConfigFieldCollector(fields, ""));
  return fields;
}

void read_config_fields(const std::vector<ConfigField>& fields, const std::string& text,
                        const std::string& source, const std::vector<std::string>& overrides);
/// Reads a parsed map into the fields; what does not fit is appended to `problems`.
void read_config_map(const std::vector<ConfigField>& fields, const ConfigNode& map,
                     std::vector<ConfigProblem>& problems);
/// Levenshtein distance: how near a wrong name is to a known one.
std::size_t edit_distance(std::string_view a, std::string_view b);
/// The override "a.b=c" as the map {a: {b: c}}.
ConfigNode config_override_tree(const std::string& text, std::vector<ConfigProblem>& problems);
/// `key`, dotted, as a map around the value: a.b and c as {a: {b: c}}.
ConfigNode nested_setting(const std::string& key, const ConfigNode& value);
/// Its text. Throws std::runtime_error, naming it, where it cannot be read, is empty or too large.
std::string read_config_file(const std::string& path);
/// The place of the setting that a problem begins with ("optim.lr must be positive, not -1"):
/// "file:4: " or "override optim.lr=-1: "; nothing where it has its default or none is named.
std::string place_of_setting(std::string_view problem, const std::string& text,
                             const std::string& source, const std::vector<std::string>& overrides);
std::string dump_config_fields(const std::vector<ConfigField>& fields, bool with_help);
std::string describe_config_fields(const std::vector<ConfigField>& fields);
/// The settings as an object, groups as objects in it: numbers and truth values as such, everything
/// else as text.
nlohmann::ordered_json settings_json(const std::vector<ConfigField>& settings);

/// Reads YAML text and then the overrides ("a.b=c", the last one of a key wins) into `config`;
/// what neither names keeps its value. A bare override a,b and [a, b] are both lists; quotes make
/// text of anything. `source` is what errors call the text. Throws std::runtime_error listing every
/// problem, one per line, and leaves `config` as it was.
template <class T>
void read_config_text(const std::string& text, const std::string& source,
                      const std::vector<std::string>& overrides, T& config) {
  T result = config;
  read_config_fields(config_fields(result), text, source, overrides);
  config = std::move(result);
}

/// The same from a file of at most 1 MB; an empty path means overrides alone.
template <class T>
void read_config(const std::string& path, const std::vector<std::string>& overrides, T& config) {
  read_config_text(path.empty() ? "" : read_config_file(path), path, overrides, config);
}

/// Every key with its value, as YAML that reads back to an equal config.
template <class T>
std::string dump_config(const T& config, bool with_help = false) {
  T copy = config;
  return dump_config_fields(config_fields(copy), with_help);
}

/// Help text, a line per key: "focus.num_groups  (int, 1..64, default 4)  groups K".
template <class T>
std::string describe_config(const T& defaults) {
  T copy = defaults;
  return describe_config_fields(config_fields(copy));
}

// Settings that are tried one after the other.

/// Keys with their values, lists; or a choice of one value for each.
using Sweep = std::vector<ConfigNode::Entry>;

/// Reads lines of `key: [value, value]`; what does not fit is appended to `problems`.
Sweep read_sweep(const ConfigNode& map, std::vector<ConfigProblem>& problems);

/// Every choice of one value for each key, the last key fastest; one empty choice without keys.
/// Throws std::invalid_argument where there are more than `most`.
std::vector<Sweep> sweep_product(const Sweep& keys, std::size_t most);

/// The name with the values of what is swept, by the last part of its key unless two end alike:
/// "focus, num_groups=8".
std::string sweep_label(const std::string& name, const Sweep& settings);

/// A settings struct whose type only its owner knows: what a table of kinds holds as defaults, and
/// what a config reads without knowing the kind. T has visit(), and validate() where the limits in
/// its visit do not say all. A copy is a copy of the struct.
class AnySettings {
 public:
  template <class T>
  requires(!std::is_same_v<T, AnySettings>) AnySettings(T value)  // NOLINT
      : held_(std::move(value)),
        validate_([]([[maybe_unused]] const std::any& held) {
          if constexpr (requires(const T& settings) { settings.validate(); })
            std::any_cast<const T&>(held).validate();
        }),
        visit_([](std::any& held, ConfigFieldCollector& f) { std::any_cast<T&>(held).visit(f); }) {}

  /// Null where it holds another type.
  template <class T>
  const T* get_if() const {
    return std::any_cast<T>(&held_);
  }
  /// Throws std::bad_any_cast where it holds another type.
  template <class T>
  const T& as() const {
    return std::any_cast<const T&>(held_);
  }
  /// Throws std::invalid_argument naming the key that is out of range.
  void validate() const { validate_(held_); }
  void visit(ConfigFieldCollector& f) { visit_(held_, f); }
  void visit(ConfigFieldCollector&& f) { visit_(held_, f); }

 private:
  std::any held_;
  void (*validate_)(const std::any&);
  void (*visit_)(std::any&, ConfigFieldCollector&);
};

/// The settings of one kind of a table: a config has them as a section under the kind's name.
struct SettingsSection {
  std::string name, help;
  AnySettings settings;
};

}  // namespace focus
