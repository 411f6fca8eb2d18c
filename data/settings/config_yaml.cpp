#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "data/files/json_reader.h"
#include "data/files/utf8.h"
#include "data/settings/config_values.h"

namespace focus {
namespace {

using Kind = ConfigNode::Kind;

constexpr int kMaxDepth = 16;
constexpr int kMaxValues = 10'000;  // keys count too

int line_of(const YAML::Mark& mark) { return mark.line + 1; }

ConfigProblem too_many(const char* what, int most, const YAML::Mark& mark) {
  return {line_of(mark), fmt::format("expected at most {} {}, got more", most, what)};
}

/// Builds ConfigNodes from the parser's events. Events, not yaml-cpp's own tree: the tree has
/// already followed the aliases and forgotten repeated keys, tags and quotes.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(std::vector<ConfigProblem>& problems) : problems_(problems) {}

  ConfigNode take_root() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ == 2) refuse(mark, "expected one YAML document, got a second one");
  }
  void OnDocumentEnd() override {}

  void OnAnchor(const YAML::Mark& mark, const std::string& name) override {
    refuse(mark, fmt::format("anchors (&{}) are not supported, write the value out", shown(name)));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    refuse(mark, "aliases (*name) are not supported, write the value out");
    add(make(Kind::kRefused, mark));
  }
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { add(make(Kind::kNull, mark)); }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                const std::string& value) override {
    check_tag(mark, tag);
    ConfigNode node = make(Kind::kScalar, mark);
    node.text = value;
    node.quoted = tag != "?";
    add(std::move(node));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    open(Kind::kList, mark, tag);
  }
  void OnSequenceEnd() override { close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    open(Kind::kMap, mark, tag);
  }
  void OnMapEnd() override { close(); }

 private:
  /// A list or map still being filled. A map alternates between keys and values.
  struct Open {
    ConfigNode node;
    std::optional<ConfigNode::Entry> entry = {};  // of a map: its key came, its value did not
    bool keeps_entry = false;
    std::map<std::string, int> lines = {};  // of the keys so far
  };

  ConfigNode make(Kind kind, const YAML::Mark& mark) {
    if (++values_ > kMaxValues) throw too_many("values", kMaxValues, mark);
    return {.kind = kind, .line = line_of(mark), .entries = {}};
  }

  void refuse(const YAML::Mark& mark, std::string text) {
    problems_.push_back({line_of(mark), std::move(text)});
  }

  /// "?" and "!" are what the parser reports for bare and for quoted values without a tag.
  void check_tag(const YAML::Mark& mark, const std::string& tag) {
    if (!tag.empty() && tag != "?" && tag != "!")
      refuse(mark, fmt::format("tags ({}) are not supported, write the bare value", shown(tag)));
  }

  void open(Kind kind, const YAML::Mark& mark, const std::string& tag) {
    check_tag(mark, tag);
    if (stack_.size() >= kMaxDepth) throw too_many("levels", kMaxDepth, mark);
    stack_.push_back({make(kind, mark)});
  }

  void close() {
    ConfigNode node = std::move(stack_.back().node);
    stack_.pop_back();
    add(std::move(node));
  }

  void add(ConfigNode node) {
    if (stack_.empty()) {
      if (documents_ == 1) root_ = std::move(node);
    } else if (stack_.back().node.kind == Kind::kList) {
      stack_.back().node.items.push_back(std::move(node));
    } else if (Open& map = stack_.back(); !map.entry) {
      map.entry = {node.text, node.line, {}};
      map.keeps_entry = is_new_key(map, node);
    } else {
      map.entry->value = std::move(node);
      if (map.keeps_entry) map.node.entries.push_back(*std::move(map.entry));
      map.entry.reset();
    }
  }

  bool is_new_key(Open& map, const ConfigNode& node) {
    const auto wrong = [&](std::string problem) {
      problems_.push_back({node.line, std::move(problem)});
      return false;
    };
    if (node.kind != Kind::kScalar) return wrong("expected a string as a key, got something else");
    if (node.text == "<<") return wrong("merge keys (<<) are not supported, write the values out");
    const auto [same, is_new] = map.lines.emplace(node.text, node.line);
    return is_new || wrong(fmt::format("{}: the same key is already on line {}", shown(node.text),
                                       same->second));
  }

  std::vector<ConfigProblem>& problems_;
  std::vector<Open> stack_;
  ConfigNode root_;
  int documents_ = 0;
  int values_ = 0;
};

/// The first line that is not clean UTF-8 text, or no problem.
bool check_bytes(const std::string& text, std::vector<ConfigProblem>& problems) {
  const auto wrong = [&](int line, const char* problem) {
    problems.push_back({line, problem});
    return false;
  };
  if (text.starts_with("\xef\xbb\xbf"))
    return wrong(1, "the file starts with a byte-order mark, save it without one");
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const auto is_control = [](char c) {
      return static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\r';
    };
    if (std::ranges::any_of(line, is_control))
      return wrong(number, "expected text, got a control character");
    if (!is_valid_utf8(line)) return wrong(number, "expected UTF-8 text, got other bytes");
  }
  return true;
}

}  // namespace

ConfigNode parse_config_yaml(const std::string& text, std::vector<ConfigProblem>& problems) {
  const ConfigNode empty{.kind = Kind::kMap, .entries = {}};
  if (!check_bytes(text, problems)) return empty;
  TreeBuilder builder(problems);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const ConfigProblem& much) {
    problems.push_back(much);
    return empty;
  } catch (const YAML::Exception& error) {
    problems.push_back({line_of(error.mark), "not valid YAML: " + shown(error.msg)});
    return empty;
  }
  ConfigNode root = builder.take_root();
  return root.kind == Kind::kNull ? empty : root;
}

}  // namespace focus
