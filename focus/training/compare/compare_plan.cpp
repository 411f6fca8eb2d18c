#include "focus/training/compare/compare_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "autograd/base/check.h"
#include "data/files/json_reader.h"
#include "data/settings/config.h"
#include "focus/evaluation/attention_spec.h"
#include "focus/evaluation/recall/long_range.h"

namespace focus {

// A group of keys as it is written.
void read_value(const ConfigNode& node, const Range&, ConfigNode& value) {
  if (node.kind != ConfigNode::Kind::kMap && node.kind != ConfigNode::Kind::kNull)
    refuse_value("a group of keys", node);
  value = node;
}
std::string value_text(const ConfigNode&) { return ""; }
std::string type_text(const ConfigNode&) { return "group of keys"; }

namespace {

using Problems = std::vector<ConfigProblem>;

constexpr std::size_t kMaxRuns = 10'000;

/// A comparison's text.
struct CompareText {
  CompareConfig config = {};
  ConfigNode common = {}, sweep = {};
  std::vector<ConfigNode> runs = {};

  void visit(auto&& f) {
    config.visit(f);
    FOCUS_MEMBERS(f, common, sweep, runs);
  }
};

/// What a run says beside its train keys.
struct RunText {
  std::string name = {};
  ConfigNode sweep = {};
  std::vector<std::int64_t> seeds = {};
  std::vector<std::string> attentions = {};

  void visit(auto&& f) {
    FOCUS_MEMBERS(f, name, sweep);
    f("seeds", seeds, "", {0, 1e18});
    f("attentions", attentions);
  }
};

/// Whether the key, or the group that it is in, is one of the fields.
bool has_key(const std::vector<ConfigField>& fields, const std::string& key) {
  return std::ranges::count(fields, key.substr(0, key.find('.')), &ConfigField::key) > 0;
}

/// Takes the entries with these keys out of the map.
ConfigNode take(const std::vector<ConfigField>& fields, ConfigNode& map) {
  ConfigNode taken;
  taken.kind = ConfigNode::Kind::kMap;
  std::erase_if(map.entries, [&](const ConfigNode::Entry& entry) {
    if (has_key(fields, entry.key)) taken.entries.push_back(entry);
    return has_key(fields, entry.key);
  });
  return taken;
}

void read_train_keys(const ConfigNode& map, RunConfig& config, Problems& problems) {
  const auto fields = config_fields(config);
  for (const ConfigNode::Entry& entry : map.entries) {
    if (entry.key == "seed" || entry.key == "out") {
      problems.push_back({entry.line, fmt::format("{}: not allowed in a single run: seeds and out "
                                                  "belong to the top level of a comparison",
                                                  entry.key)});
      continue;
    }
    ConfigNode one = nested_setting(entry.key, entry.value);
    one.entries[0].line = entry.line;
    read_config_map(fields, one, problems);
  }
}

template <class T>
bool twice(const std::vector<T>& values) {
  return std::set(values.begin(), values.end()).size() != values.size();
}

std::string key_of(const std::string& override) { return override.substr(0, override.find('=')); }

/// A comparison's text and overrides that become a plan; all errors are reported at once.
class PlanReader {
 public:
  PlanReader(const std::string& source, const std::vector<std::string>& overrides)
      : source_(source), overrides_(overrides) {}

  ComparePlan read(const std::string& text) {
    CompareText parts;
    const ConfigNode root = parse_config_yaml(text, problems_);
    if (!problems_.empty() && root.entries.empty()) tell();  // nothing was read
    if (root.kind != ConfigNode::Kind::kMap)
      problems_.push_back({root.line, "expected lines of `key: value`"});
    read_config_map(config_fields(parts), root, problems_);
    if (parts.runs.empty())
      problems_.push_back({0, "runs is empty: name at least one, `runs: [{name: ...}]`"});
    plan_.config = parts.config;
    read_overrides();
    check_own_keys();
    read_train_keys(parts.common, common_, problems_);
    const Sweep global = read_sweep(parts.sweep, problems_);
    for (ConfigNode& node : parts.runs) {
      RunText run;
      const auto fields = config_fields(run);
      read_config_map(fields, take(fields, node), problems_);
      if (run.name.empty()) problems_.push_back({node.line, "runs: every run needs a name"});
      Sweep keys = global;
      for (const ConfigNode::Entry& own : read_sweep(run.sweep, problems_)) {
        std::erase_if(keys, [&](const ConfigNode::Entry& other) { return other.key == own.key; });
        keys.push_back(own);
      }
      for (const Sweep& settings : sweep_product(keys, kMaxRuns)) plan_run(run, node, settings);
    }
    tell();
    return plan_;
  }

 private:
  void read_overrides() {
    const auto fields = config_fields(plan_.config);
    RunConfig scratch;  // tells what is wrong with an override once, not in every run
    for (const std::string& item : overrides_) {
      Problems own;
      const ConfigNode tree = config_override_tree(item, own);
      if (own.empty() && has_key(fields, key_of(item))) {
        read_config_map(fields, tree, own);
      } else if (own.empty()) {
        read_train_keys(tree, scratch, own);
        if (own.empty()) train_overrides_.push_back(tree);
      }
      for (const ConfigProblem& problem : own)
        lines_.push_back(fmt::format("override {}: {}", shown(item), problem.text));
    }
  }

  void check_own_keys() {
    const auto wrong = [&](const std::string& text) { problems_.push_back({0, text}); };
    if (plan_.config.seeds.empty()) wrong("seeds is empty: name at least one, such as [1]");
    if (twice(plan_.config.seeds)) wrong("seeds: the same seed appears twice");
    const CompareEval& eval = plan_.config.eval;
    if (eval.valid.empty() && eval.texts.target.empty() && eval.recall.empty())
      wrong("eval.valid is empty: name the texts that runs are compared on, or eval.recall");
    for (const auto& [key, texts] :
         {std::pair{"eval.texts", eval.texts}, std::pair{"eval.test_texts", eval.test_texts}})
      if (texts.target.empty() != texts.source.empty())
        wrong(fmt::format("{0}.{1} is empty, but {0}.{2} is not: name both", key,
                          texts.target.empty() ? "target" : "source",
                          texts.target.empty() ? "source" : "target"));
    try {
      attentions_of(attentions(), {});
    } catch (const std::exception& error) {
      wrong(error.what());
    }
    if (twice(eval.recall)) wrong("eval.recall: the same questions appear twice");
    for (const std::string& questions : eval.recall) {
      try {
        asked_documents(questions);  // makes or reads them
      } catch (const std::exception& error) {
        wrong(fmt::format("eval.recall: {}", error.what()));
      }
    }
  }

  /// One training of a run, once for each seed.
  void plan_run(const RunText& run, const ConfigNode& train_keys, const Sweep& settings) {
    const int line = train_keys.line;
    PlannedRun planned{.name = sweep_label(run.name, settings), .config = common_};
    planned.attentions = run.attentions.empty() ? attentions() : run.attentions;
    Problems own;
    if (twice(run.seeds)) own.push_back({line, "runs: seeds: the same seed appears twice"});
    read_train_keys(train_keys, planned.config, own);
    for (const ConfigNode::Entry& setting : settings) {
      // It would win over every value, in runs that are named by the values.
      if (std::ranges::find(overrides_, setting.key, key_of) != overrides_.end())
        own.push_back(
            {line,
             fmt::format(
                 "run {} sweeps {}, which is also an override: remove the override or the sweep",
                 shown(run.name), setting.key)});
      ConfigNode one;
      one.entries.push_back(setting);
      read_train_keys(one, planned.config, own);
    }
    for (const ConfigNode& tree : train_overrides_) read_train_keys(tree, planned.config, own);
    if (!names_.insert(planned.name).second)
      own.push_back({line, fmt::format("runs: the name {} appears twice", shown(planned.name))});
    if (own.empty() && problems_.empty() && lines_.empty()) {
      try {
        check(planned.config.epochs == 0, "epochs is {}: runs that are compared have steps",
              planned.config.epochs);
        planned.config.validate();
        const std::vector<std::string>& words = planned.attentions;
        check(words.empty() || !attentions_of(words, planned.config).empty(),
              "it supports none of {}, {}: list",
              run.attentions.empty() ? "eval.attentions" : "its attentions",
              fmt::join(words, ", "));
      } catch (const std::exception& error) {  // an invalid attention is a runtime_error
        own.push_back({line, fmt::format("run {}: {}", shown(planned.name), error.what())});
      }
    }
    problems_.insert(problems_.end(), own.begin(), own.end());
    for (const std::int64_t seed : run.seeds.empty() ? plan_.config.seeds : run.seeds) {
      planned.config.seed = seed;
      plan_.runs.push_back(planned);
    }
    check(plan_.runs.size() <= kMaxRuns, "{}: expected at most {} runs, got more", source_,
          kMaxRuns);
  }

  /// Throws where there is anything to tell.
  void tell() {
    std::ranges::stable_sort(problems_, {}, &ConfigProblem::line);
    std::set<std::string> told;  // a run that is swept has its mistake once
    for (const ConfigProblem& problem : problems_) {
      const std::string line = problem.line > 0
                                   ? fmt::format("{}:{}: {}", source_, problem.line, problem.text)
                                   : fmt::format("{}: {}", source_, problem.text);
      if (told.insert(line).second) lines_.push_back(line);
    }
    if (!lines_.empty()) fail("{}", fmt::join(lines_, "\n"));
  }

  const std::vector<std::string>& attentions() const {
    return plan_.config.eval.settings.attentions;
  }

  const std::string& source_;
  const std::vector<std::string>& overrides_;
  ComparePlan plan_;
  RunConfig common_;
  std::vector<ConfigNode> train_overrides_;
  std::set<std::string> names_;
  Problems problems_;
  std::vector<std::string> lines_;
};

/// Whether a Focus of these settings has a word's attention, and groups enough for it.
bool focus_has(const FocusConfig& config, const AttentionSpec& spec) {
  const bool hard = spec.kind == AttentionKind::hard;
  const bool by_token =
      spec.kind == AttentionKind::soft || hard || spec.summary.selection == GroupSelection::own;
  if (by_token && !grouping_kind(config).groups_tokens) return false;
  return std::max<Index>(hard ? spec.top_k : 0, spec.summary.num_selected_groups.value_or(0)) <=
         config.num_groups;
}

}  // namespace

std::vector<std::pair<std::string, std::vector<std::string>>> CompareEval::splits(
    bool with_test) const {
  std::vector<std::pair<std::string, std::vector<std::string>>> all = {
      {"valid", valid}, {"target", texts.target}, {"source", texts.source}};
  if (with_test) {
    all.emplace_back("test", test);
    all.emplace_back("test target", test_texts.target);
    all.emplace_back("test source", test_texts.source);
  }
  std::erase_if(all, [](const auto& split) { return split.second.empty(); });
  return all;
}

std::vector<std::string> attentions_of(const std::vector<std::string>& words,
                                       const RunConfig& config) {
  static const std::vector<std::string> all = {"dense", "local", "focus", "trained"};
  std::vector<std::string> fitting;
  for (const std::string& word : words.empty() ? all : words) {
    const AttentionSpec spec = parse_attention(word, "eval.attentions");
    const bool fits = spec.needs_focus()
                          ? config.has_focus() && focus_has(config.focus, spec)
                          : spec.kind != AttentionKind::trained || config.mechanism().has_value();
    if (fits) fitting.push_back(word);
  }
  return fitting;
}

ComparePlan read_compare_plan(const std::string& text, const std::string& source,
                              const std::vector<std::string>& overrides) {
  return PlanReader(source, overrides).read(text);
}

}  // namespace focus
