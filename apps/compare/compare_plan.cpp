#include "apps/compare/compare_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "autograd/check.h"
#include "data/files/json_reader.h"
#include "data/settings/recipe.h"
#include "focus/train/attention_spec.h"

namespace focus {
namespace {

using Kind = RecipeNode::Kind;
using Problems = std::vector<RecipeProblem>;

constexpr std::size_t kMaxRuns = 10'000;

/// One value of a swept key.
struct Setting {
  std::string key;
  RecipeNode value;
};
/// A key and its values; a sweep is a list of these.
struct Axis {
  std::string key;
  std::vector<RecipeNode> values;
};

/// `key`, dotted, as a map around the value.
RecipeNode nested(const std::string& key, const RecipeNode& value) {
  RecipeNode map;
  map.kind = Kind::kMap;
  map.line = value.line;
  const std::size_t dot = key.find('.');
  map.entries.push_back(
      dot == std::string::npos
          ? RecipeNode::Entry{key, value.line, value}
          : RecipeNode::Entry{key.substr(0, dot), value.line, nested(key.substr(dot + 1), value)});
  return map;
}

void read_train_keys(const RecipeNode& map, RunConfig& config, Problems& problems) {
  const auto fields = recipe_fields(config, RetiredKeys::refused);
  for (const RecipeNode::Entry& entry : map.entries) {
    if (entry.key == "seed" || entry.key == "out") {
      problems.push_back({entry.line, fmt::format("{}: not of a single run: seeds and out stand at "
                                                  "the top of a comparison",
                                                  entry.key)});
      continue;
    }
    RecipeNode one = nested(entry.key, entry.value);
    one.entries[0].line = entry.line;
    read_recipe_map(fields, one, problems);
  }
}

std::vector<Axis> read_sweep(const RecipeNode& map, Problems& problems) {
  std::vector<Axis> axes;
  if (map.kind != Kind::kMap && map.kind != Kind::kNull)
    problems.push_back({map.line, "sweep: wanted lines of `key: [value, value]`"});
  for (const RecipeNode::Entry& entry : map.entries) {
    if (entry.value.kind != Kind::kList || entry.value.items.empty())
      problems.push_back({entry.line, fmt::format("sweep: {}: wanted a list such as [a, b] of its "
                                                  "values, came something else or an empty one",
                                                  shown(entry.key))});
    else
      axes.push_back({entry.key, entry.value.items});
  }
  return axes;
}

/// Every choice of one value for each axis, the last axis fastest.
std::vector<std::vector<Setting>> product(const std::vector<Axis>& axes) {
  std::vector<std::vector<Setting>> all = {{}};
  for (const Axis& axis : axes) {
    std::vector<std::vector<Setting>> longer;
    for (const auto& settings : all)
      for (const RecipeNode& value : axis.values) {
        longer.push_back(settings);
        longer.back().push_back({axis.key, value});
      }
    all = std::move(longer);
    check(all.size() <= kMaxRuns, "sweep: wanted at most {} combinations, came more", kMaxRuns);
  }
  return all;
}

std::string text_of(const RecipeNode& node) {
  if (node.kind != Kind::kList) return node.text;
  std::vector<std::string> items;
  for (const RecipeNode& item : node.items) items.push_back(text_of(item));
  return fmt::format("[{}]", fmt::join(items, ", "));
}

std::string last_part(const std::string& key) { return key.substr(key.rfind('.') + 1); }

/// The name with the values of what is swept, by the last part of its key unless two end alike.
std::string label_of(const std::string& name, const std::vector<Setting>& settings) {
  std::string label = name;
  for (const Setting& setting : settings) {
    const auto alike = std::ranges::count(settings, last_part(setting.key),
                                          [](const Setting& s) { return last_part(s.key); });
    label += fmt::format(", {}={}", alike > 1 ? setting.key : last_part(setting.key),
                         text_of(setting.value));
  }
  return label;
}

/// The parts of a comparison's text, the comparison's own keys read already.
struct Parts {
  RecipeNode common, sweep;
  std::vector<RecipeNode> runs;
};

Parts split_text(const RecipeNode& root, CompareConfig& config, Problems& problems) {
  Parts parts;
  RecipeNode own;
  own.kind = Kind::kMap;
  if (root.kind != Kind::kMap) problems.push_back({root.line, "wanted lines of `key: value`"});
  for (const RecipeNode::Entry& entry : root.entries) {
    const RecipeNode& value = entry.value;
    if (entry.key == "common") {
      parts.common = value;
      if (value.kind != Kind::kMap && value.kind != Kind::kNull)
        problems.push_back({entry.line, "common: wanted a group of train keys"});
    } else if (entry.key == "sweep") {
      parts.sweep = value;
    } else if (entry.key == "runs") {
      if (value.kind != Kind::kList)
        problems.push_back({entry.line, "runs: wanted a list of `- name: ...`"});
      parts.runs = value.items;
    } else {
      own.entries.push_back(entry);
    }
  }
  if (parts.runs.empty())
    problems.push_back({0, "runs is empty: name at least one, `runs: [{name: ...}]`"});
  read_recipe_map(recipe_fields(config, RetiredKeys::refused), own, problems);
  return parts;
}

/// A run's mapping without its name and sweep.
struct RunPart {
  std::string name;
  RecipeNode keys;
  std::vector<Axis> sweep;
};

RunPart split_run(const RecipeNode& node, Problems& problems) {
  RunPart run;
  run.keys.kind = Kind::kMap;
  if (node.kind != Kind::kMap) problems.push_back({node.line, "runs: wanted `- name: ...`"});
  for (const RecipeNode::Entry& entry : node.entries) {
    if (entry.key == "name") {
      if (entry.value.kind == Kind::kScalar) run.name = entry.value.text;
    } else if (entry.key == "sweep") {
      run.sweep = read_sweep(entry.value, problems);
    } else {
      run.keys.entries.push_back(entry);
    }
  }
  if (run.name.empty()) problems.push_back({node.line, "runs: every run needs a name"});
  return run;
}

bool is_own_key(const std::string& override) {
  const std::string key = override.substr(0, override.find('='));
  return key == "title" || key == "out" || key == "seeds" || key == "eval" ||
         key.starts_with("eval.");
}

}  // namespace

std::vector<std::string> attentions_of(const std::vector<std::string>& words,
                                       const RunConfig& config) {
  static const std::vector<std::string> all = {"dense", "local", "focus", "trained"};
  std::vector<std::string> fitting;
  for (const std::string& word : words.empty() ? all : words) {
    const AttentionSpec spec = parse_attention(word, "eval.attentions");
    const bool fits =
        spec.needs_focus()
            ? config.has_focus() && !(spec.kind == "hard" && spec.top_k > config.focus.num_groups)
            : spec.kind != "trained" || config.mechanism().has_value();
    if (fits) fitting.push_back(word);
  }
  return fitting;
}

ComparePlan read_compare_plan(const std::string& text, const std::string& source,
                              const std::vector<std::string>& overrides) {
  ComparePlan plan;
  Problems problems;
  std::vector<std::string> lines;
  const RecipeNode root = parse_recipe_yaml(text, problems);
  const Parts parts = split_text(root, plan.config, problems);

  std::vector<RecipeNode> train_overrides;
  RunConfig scratch;  // tells what is wrong with an override once, not in every run
  for (const std::string& item : overrides) {
    Problems own;
    const RecipeNode tree = recipe_override_tree(item, own);
    if (own.empty() && is_own_key(item)) {
      read_recipe_map(recipe_fields(plan.config, RetiredKeys::refused), tree, own);
    } else if (own.empty()) {
      read_train_keys(tree, scratch, own);
      if (own.empty()) train_overrides.push_back(tree);
    }
    for (const RecipeProblem& problem : own)
      lines.push_back(fmt::format("override {}: {}", shown(item), problem.text));
  }

  const auto& seeds = plan.config.seeds;
  if (seeds.empty()) problems.push_back({0, "seeds is empty: name at least one, such as [1]"});
  if (std::set(seeds.begin(), seeds.end()).size() != seeds.size())
    problems.push_back({0, "seeds: the same seed twice"});

  if (plan.config.eval.valid.empty())
    problems.push_back({0, "eval.valid is empty: name the texts that runs are compared on"});

  const std::vector<std::string>& attentions = plan.config.eval.settings.attentions;
  try {
    attentions_of(attentions, {});
  } catch (const std::exception& error) {
    problems.push_back({0, error.what()});
  }

  RunConfig common;
  read_train_keys(parts.common, common, problems);
  const std::vector<Axis> global = read_sweep(parts.sweep, problems);
  std::set<std::string> names;
  for (const RecipeNode& node : parts.runs) {
    const RunPart run = split_run(node, problems);
    std::vector<Axis> axes = global;
    for (const Axis& axis : run.sweep) {
      std::erase_if(axes, [&](const Axis& other) { return other.key == axis.key; });
      axes.push_back(axis);
    }
    for (const std::vector<Setting>& settings : product(axes)) {
      PlannedRun planned{.name = label_of(run.name, settings), .config = common};
      Problems own;
      read_train_keys(run.keys, planned.config, own);
      for (const Setting& setting : settings) {
        RecipeNode one;
        one.entries.push_back({setting.key, setting.value.line, setting.value});
        read_train_keys(one, planned.config, own);
      }
      for (const RecipeNode& tree : train_overrides) read_train_keys(tree, planned.config, own);
      if (!names.insert(planned.name).second)
        own.push_back({node.line, fmt::format("runs: the name {} twice", shown(planned.name))});
      if (own.empty() && problems.empty() && lines.empty()) {
        try {
          planned.config.validate();
          check(attentions.empty() || !attentions_of(attentions, planned.config).empty(),
                "it has nothing of eval.attentions, {}: list dense too, or leave it out",
                fmt::join(attentions, ", "));
        } catch (const std::invalid_argument& error) {
          own.push_back({node.line, fmt::format("run {}: {}", shown(planned.name), error.what())});
        }
      }
      problems.insert(problems.end(), own.begin(), own.end());
      for (const std::int64_t seed : seeds) {
        planned.config.seed = seed;
        plan.runs.push_back(planned);
      }
      check(plan.runs.size() <= kMaxRuns, "{}: wanted at most {} runs, came more", source,
            kMaxRuns);
    }
  }

  std::ranges::stable_sort(problems, {}, &RecipeProblem::line);
  std::set<std::string> told;  // a run that is swept has its mistake once
  for (const RecipeProblem& problem : problems) {
    const std::string line = problem.line > 0
                                 ? fmt::format("{}:{}: {}", source, problem.line, problem.text)
                                 : fmt::format("{}: {}", source, problem.text);
    if (told.insert(line).second) lines.push_back(line);
  }
  if (!lines.empty()) fail("{}", fmt::join(lines, "\n"));
  return plan;
}

}  // namespace focus
