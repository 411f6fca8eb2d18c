#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "data/settings/recipe_values.h"
#include "data/settings/recipe_yaml.h"

/// A recipe: a YAML file of settings, plus `a.b=c` overrides, read strictly into a struct.
///
/// A struct lists its members once, in `void visit(auto&& f)`:
///   f("num_groups", num_groups, "groups K", {1, 64});   // limits are optional, both inclusive
///   f("focus", focus, "sparse attention");              // a struct with a visit of its own
///   f.retired("window", "is local_window now", read);   // a key that older files may hold
/// A member is a bool, int, std::int64_t, std::uint64_t, float, double, std::string or an enum with
/// enum_names; or a std::vector, or a std::optional (null), of these.
namespace focus {

/// One line of a visit, its type hidden. A group (a nested struct) has no `read`.
struct RecipeField {
  std::string key;   // dotted, from the root
  std::string help;  // one line
  std::string type;
  Range range;
  std::function<void(const RecipeNode&)> read;  // throws what read_value throws
  std::function<std::string()> text;            // the value now, as YAML
  std::string retired = {};                     // of a key that is no longer: what to write instead
};

/// Which keys are read: those of today; with those that have been retired, told so; or, from files
/// that the program itself wrote, translated.
enum class RetiredKeys { left_out, refused, translated };

class RecipeFieldCollector {
 public:
  RecipeFieldCollector(std::vector<RecipeField>& fields, std::string prefix, RetiredKeys retired)
      : fields_(fields), prefix_(std::move(prefix)), retired_(retired) {}

  template <class T>
  void operator()(const std::string& name, T& member, const std::string& help = "",
                  Range range = {}) {
    const std::string key = prefix_ + name;
    if constexpr (requires(RecipeFieldCollector & f) { member.visit(f); }) {
      fields_.push_back({key, help, "group", range, nullptr, nullptr});
      member.visit(RecipeFieldCollector(fields_, key + ".", retired_));
    } else {
      fields_.push_back(
          {key, help, type_text(member), range,
           [&member, range](const RecipeNode& node) { read_value(node, range, member); },
           [&member] { return value_text(member); }});
    }
  }

  /// A key that older recipes may hold: `message` says what to write instead; `translate`, where
  /// given, reads the value that a file of the program's own holds.
  void retired(const std::string& name, const std::string& message,
               std::function<void(const RecipeNode&)> translate = {}) {
    if (retired_ == RetiredKeys::left_out) return;
    const bool read = retired_ == RetiredKeys::translated && translate;
    fields_.push_back(
        {prefix_ + name, "", "", {}, std::move(translate), nullptr, read ? "" : message});
  }

 private:
  std::vector<RecipeField>& fields_;
  std::string prefix_;
  RetiredKeys retired_;
};

/// All fields of a config in the order of its visits; they point into `config`.
template <class T>
std::vector<RecipeField> recipe_fields(T& config, RetiredKeys retired = RetiredKeys::left_out) {
  std::vector<RecipeField> fields;
  config.visit(RecipeFieldCollector(fields, "", retired));
  return fields;
}

void read_recipe_fields(const std::vector<RecipeField>& fields, const std::string& text,
                        const std::string& source, const std::vector<std::string>& overrides);
/// Reads a parsed map into the fields; what does not fit is appended to `problems`.
void read_recipe_map(const std::vector<RecipeField>& fields, const RecipeNode& map,
                     std::vector<RecipeProblem>& problems);
/// The override "a.b=c" as the map {a: {b: c}}.
RecipeNode recipe_override_tree(const std::string& text, std::vector<RecipeProblem>& problems);
/// Its text. Throws std::runtime_error, naming it, where it cannot be read, is empty or too large.
std::string read_recipe_file(const std::string& path);
std::string dump_recipe_fields(const std::vector<RecipeField>& fields, bool with_help);
std::string dump_changed_fields(const std::vector<RecipeField>& fields,
                                const std::vector<RecipeField>& defaults);
std::string describe_recipe_fields(const std::vector<RecipeField>& fields);

/// Reads YAML text and then the overrides ("a.b=c", the last one of a key wins) into `config`;
/// what neither names keeps its value. A bare override a,b and [a, b] are both lists; quotes make
/// text of anything. `source` is what errors call the text. Throws std::runtime_error listing every
/// problem, one per line, and leaves `config` as it was.
template <class T>
void read_recipe_text(const std::string& text, const std::string& source,
                      const std::vector<std::string>& overrides, T& config) {
  T result = config;
  read_recipe_fields(recipe_fields(result, RetiredKeys::refused), text, source, overrides);
  config = std::move(result);
}

/// The same of settings that the program itself has written, in whatever version: keys that are no
/// longer are translated.
template <class T>
void read_stored_recipe(const std::string& text, const std::string& source, T& config) {
  T result = config;
  read_recipe_fields(recipe_fields(result, RetiredKeys::translated), text, source, {});
  config = std::move(result);
}

/// The same from a file of at most 1 MB; an empty path means overrides alone.
template <class T>
void read_recipe(const std::string& path, const std::vector<std::string>& overrides, T& config) {
  read_recipe_text(path.empty() ? "" : read_recipe_file(path), path, overrides, config);
}

/// Every key with its value, as YAML that reads back to an equal config.
template <class T>
std::string dump_recipe(const T& config, bool with_help = false) {
  T copy = config;
  return dump_recipe_fields(recipe_fields(copy), with_help);
}

/// Each key whose value is not the default's, as "focus.num_groups: 8", in the order of their
/// names. The same text for the same settings, whatever keys with defaults are added to the struct.
template <class T>
std::string dump_recipe_changes(const T& config) {
  T copy = config, defaults;
  return dump_changed_fields(recipe_fields(copy), recipe_fields(defaults));
}

/// Help text, a line per key: "focus.num_groups  (int, 1..64, default 4)  groups K".
template <class T>
std::string describe_recipe(const T& defaults) {
  T copy = defaults;
  return describe_recipe_fields(recipe_fields(copy));
}

}  // namespace focus
