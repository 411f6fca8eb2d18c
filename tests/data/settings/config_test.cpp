#include "data/settings/config.h"

#include <rapidcheck/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "data/settings/members.h"
#include "data/settings/struct_json.h"
#include "tests/support/temp_folder.h"

namespace focus {
namespace {

enum class Gate { kLogit, kAffinity };
constexpr std::array<std::string_view, 2> enum_names(Gate) { return {"logit", "affinity"}; }

struct RoutingPart {
  int num_groups = 4;
  float temperature = 0.1f;
  Gate gate = Gate::kLogit;
  void visit(auto&& f) {
    f("num_groups", num_groups, "groups K", {1, 64});
    f("temperature", temperature, "tau", {1e-6});
    f("gate", gate, "form of the gate");
  }
  bool operator==(const RoutingPart&) const = default;
};

struct Settings {
  bool resume = false;
  std::int64_t tokens = 1'000'000;
  std::uint64_t seed = 1;
  double rate = 3e-4;
  std::string name = "a run";
  std::vector<std::string> train = {"novels/a.txt", "b c.txt"};
  std::vector<std::int64_t> layers;
  std::vector<double> weights = {0.5, 1.0};
  std::optional<std::string> base;
  std::optional<double> clip = 1.0;
  RoutingPart focus;
  void visit(auto&& f) {
    f("resume", resume, "go on from the last checkpoint");
    f("tokens", tokens, "tokens to train on", {0});
    f("seed", seed, "seed of everything random");
    f("rate", rate, "learning rate", {0, 1});
    f("name", name, "name of the run");
    f("train", train, "files to train on");
    f("layers", layers, "layers to change", {0, 99});
    f("weights", weights, "weight of each file");
    f("base", base, "model to start from");
    f("clip", clip, "largest gradient norm");
    f("focus", focus, "sparse attention");
  }
  bool operator==(const Settings&) const = default;
};

Settings read(const std::string& text, const std::vector<std::string>& overrides = {}) {
  Settings settings;
  read_config_text(text, "r.yaml", overrides, settings);
  return settings;
}

std::string problems(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    read(text, overrides);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(Config, ReadsEveryKindOfValue) {
  const Settings s = read(R"(# a comment
resume: true
tokens: 9000000000
seed: 18446744073709551615
rate: 1e-3
name: 12
train: [x, "y, z"]
layers:
  - 3
  - 5
weights: []
base: "null"
clip: ~
focus:
  num_groups: 8
  gate: affinity
)");
  EXPECT_TRUE(s.resume);
  EXPECT_EQ(s.tokens, 9'000'000'000);
  EXPECT_EQ(s.seed, std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(s.rate, 1e-3);
  EXPECT_EQ(s.name, "12");
  EXPECT_EQ(s.train, (std::vector<std::string>{"x", "y, z"}));
  EXPECT_EQ(s.layers, (std::vector<std::int64_t>{3, 5}));
  EXPECT_TRUE(s.weights.empty());
  EXPECT_EQ(s.base, "null");
  EXPECT_FALSE(s.clip.has_value());
  EXPECT_EQ(s.focus.num_groups, 8);
  EXPECT_EQ(s.focus.gate, Gate::kAffinity);
  EXPECT_EQ(s.focus.temperature, 0.1f);
}

TEST(Config, EmptyTextAndEmptyGroupChangeNothing) {
  EXPECT_EQ(read(""), Settings{});
  EXPECT_EQ(read("# nothing\n"), Settings{});
  EXPECT_EQ(read("focus:\n  # num_groups: 8\nresume: false\n"), Settings{});
}

TEST(Config, OverridesWinAndTheLastOneWins) {
  const Settings s =
      read("focus: {num_groups: 8}\ntrain: [x]\n",
           {"focus.num_groups=2", "focus.num_groups=16", "train=a, b c,d", "layers=[1, 2]",
            "weights=0.25", "name=a=b: c", "base=null", "clip=null"});
  EXPECT_EQ(s.focus.num_groups, 16);
  EXPECT_EQ(s.train, (std::vector<std::string>{"a", "b c", "d"}));
  EXPECT_EQ(s.layers, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(s.weights, std::vector<double>{0.25});
  EXPECT_EQ(s.name, "a=b: c");
  EXPECT_FALSE(s.base.has_value());
  EXPECT_FALSE(s.clip.has_value());
  EXPECT_TRUE(read("", {"train="}).train.empty());
  EXPECT_EQ(read("", {"name="}).name, "");
  EXPECT_EQ(read("", {"name='null'"}).name, "null");
}

TEST(Config, ListsAllProblemsAtOnce) {
  EXPECT_EQ(problems("resume: yes\nfocus:\n  num_grups: 4\n  num_groups: 65\n  gate: soft\n"
                     "rate: fast\nrate: 0.1\n",
                     {"seed=-1", "fokus.gate=logit", "focus=3", "nonsense"}),
            "r.yaml:1: resume: expected true or false, got yes\n"
            "r.yaml:3: focus.num_grups: unknown key; did you mean focus.num_groups?\n"
            "r.yaml:4: focus.num_groups: expected an integer in the range 1..64, got 65\n"
            "r.yaml:5: focus.gate: expected one of logit, affinity, got soft\n"
            "r.yaml:6: rate: expected a number such as 0.1 or 1e-4 in the range 0..1, got fast\n"
            "r.yaml:7: rate: the same key is already on line 6\n"
            "override seed=-1: seed: expected an integer, got -1: it may not be negative\n"
            "override fokus.gate=logit: fokus: unknown key; did you mean focus?\n"
            "override focus=3: focus: expected a group of keys, got 3: it holds keys such as "
            "focus.num_groups\n"
            "override nonsense: expected key=value");
}

TEST(Config, LeavesTheConfigAloneWhenItThrows) {
  Settings s;
  EXPECT_THROW(read_config_text("tokens: 5\nrate: x\n", "r.yaml", {}, s), std::runtime_error);
  EXPECT_EQ(s, Settings{});
}

TEST(Config, SuggestsTheNearestKey) {
  EXPECT_NE(problems("num_groups: 4").find("did you mean focus.num_groups?"), std::string::npos);
  EXPECT_NE(problems("zzzzzzzz: 4").find("--help lists"), std::string::npos);
  EXPECT_NE(problems("focus.num_groups: 4").find("write nested groups"), std::string::npos);
}

TEST(Config, RefusesWhatHasMoreThanOneReading) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"tokens: 010", "leading zeros"},
      {"tokens: 0x10", "decimal"},
      {"tokens: 0o17", "decimal"},
      {"tokens: 1e3", "exponent"},
      {"tokens: 3.0", "exponent"},
      {"tokens: 1_000", "expected an integer"},
      {"tokens: +1", "expected an integer"},
      {"tokens: -1", "range >= 0"},
      {"tokens: \"4\"", "quotes"},
      {"tokens: 9223372036854775808", "64 bits"},
      {"tokens:", "got null"},
      {"tokens: [1]", "got a list"},
      {"tokens: {a: 1}", "got a group"},
      {"seed: 18446744073709551616", "64 bits"},
      {"seed: -0", "negative"},
      {"focus: {num_groups: 2147483648}", "32 bits"},
      {"focus: {temperature: 1e-50}", "32 bits"},
      {"focus: {temperature: 1e39}", "32 bits"},
      {"focus: [1]", "a group of keys"},
      {"rate: .nan", "expected a number"},
      {"rate: nan", "expected a number"},
      {"rate: .inf", "expected a number"},
      {"rate: 1e999", "64 bits"},
      {"rate: 1,5", "expected a number"},
      {"rate: 1.", "expected a number"},
      {"resume: on", "true or false"},
      {"resume: True", "true or false"},
      {"resume: 1", "true or false"},
      {"resume: \"true\"", "true or false"},
      {"name: ~", "got null"},
      {"name: [a]", "got a list"},
      {"train: a", "a list such as"},
      {"train: a, b", "a list such as"},
      {"train: [a, null]", "got null"},
      {"train: [[a]]", "got a list"},
      {"layers: [1, 100]", "0..99"},
      {"name: &a b", "anchors"},
      {"name: &a b\nbase: *a", "aliases"},
      {"focus: &f {num_groups: 3, <<: *f}", "merge keys"},
      {"name: !!str b", "tags"},
      {"focus: !thing {num_groups: 3}", "tags"},
      {"name: a\n---\nname: b", "second one"},
      {"name: a\n---\n", "second one"},
      {"- a\n- b", "got a single value or a list"},
      {"word", "got a single value or a list"},
      {"? [a]\n: b", "a string as a key"},
      {"~: b", "a string as a key"},
      {"name: [a", "not valid YAML"},
      {"name: \"a", "not valid YAML"},
      {"\tname: a", "not valid YAML"},
      {"\xef\xbb\xbfname: a", "byte-order mark"},
      {std::string("name: a\0b", 9), "control character"},
      {"name: a\x07", "control character"},
      {"name: \xff", "UTF-8"},
      {"name: \xc0\xaf", "UTF-8"},
      {"name: \xed\xa0\x80", "UTF-8"},
      {"name: " + std::string(20, '[') + std::string(20, ']'), "16 levels"},
      {"name: " + std::string(300'000, '['), "16 levels"},
  };
  for (const auto& [text, reason] : cases)
    EXPECT_NE(problems(text).find(reason), std::string::npos)
        << text.substr(0, 60) << "\n-> " << problems(text);
}

TEST(Config, NamesTheLineOfATextProblem) {
  EXPECT_EQ(problems("name: a\n\nbase: \xff\n"), "r.yaml:3: expected UTF-8 text, got other bytes");
  // A bare one too: it could not be written into config.yaml.
  EXPECT_NE(problems("", {"name=\xb2'x'"}).find("expected UTF-8 text, got other bytes"),
            std::string::npos);
  EXPECT_EQ(problems("name: x\nname: y\n"), "r.yaml:2: name: the same key is already on line 1");
  EXPECT_EQ(problems("\"a\\nb\": 1\n"),
            "r.yaml:1: a\\nb: unknown key; --help lists the known ones");
}

TEST(Config, RefusesMoreValuesThanAnyConfigHas) {
  std::string text = "train: [";
  for (int i = 0; i < 20'000; ++i) text += "a,";
  EXPECT_EQ(problems(text + "]\n"), "r.yaml:1: expected at most 10000 values, got more");
}

TEST(Config, ReadsFilesAndRefusesHugeAndMissingOnes) {
  const TempFolder folder;
  const std::string path = (folder / "config.yaml").string();
  write_text(path, "focus:\n  num_groups: 7\n");
  Settings s;
  read_config(path, {"seed=3"}, s);
  EXPECT_EQ(s.focus.num_groups, 7);
  EXPECT_EQ(s.seed, 3u);
  read_config("", {"seed=4"}, s);
  EXPECT_EQ(s.seed, 4u);

  for (const std::string& text : {std::string(1'000'001, '#'), std::string()}) {
    write_text(path, text);  // the empty one as a full disk leaves it
    EXPECT_THROW(read_config(path, {}, s), std::runtime_error);
  }
  EXPECT_THROW(read_config(path + ".missing", {}, s), std::runtime_error);
  EXPECT_THROW(read_config(folder.path().string(), {}, s), std::runtime_error);
}

TEST(Config, DumpsEveryKeyOnALine) {
  EXPECT_EQ(dump_config(Settings{}), R"(resume: false
tokens: 1000000
seed: 1
rate: 0.0003
name: "a run"
train: [novels/a.txt, "b c.txt"]
layers: []
weights: [0.5, 1]
base: null
clip: 1
focus:
  num_groups: 4
  temperature: 0.1
  gate: logit
)");
  EXPECT_NE(dump_config(Settings{}, true).find("  num_groups: 4  # groups K\n"), std::string::npos);
  Settings s;
  s.rate = std::nan("");
  EXPECT_THROW(dump_config(s), std::invalid_argument);
}

TEST(Config, DescribesTypeLimitsAndDefault) {
  const std::string text = describe_config(Settings{});
  EXPECT_NE(text.find("focus.num_groups   (int, 1..64, default 4)  groups K\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("(logit|affinity, default logit)"), std::string::npos);
  EXPECT_NE(text.find("(text or null, default null)"), std::string::npos);
  EXPECT_NE(text.find("(list of int, 0..99, default [])"), std::string::npos);
}

RC_GTEST_PROP(Config, DumpReadsBackEqual, ()) {
  const auto finite_double = [] {
    const double x = std::bit_cast<double>(*rc::gen::arbitrary<std::uint64_t>());
    return std::isfinite(x) ? x : 0.5;
  };
  const auto text = [] {  // ASCII with quotes, colons and line breaks, and words YAML cares about
    static const std::vector<std::string> kWords = {"null", "true", "~",  "0x1",  "1e3", "",
                                                    " ",    "- a",  "#x", "a: b", "é",   "\x7f"};
    return *rc::gen::oneOf(rc::gen::elementOf(kWords),
                           rc::gen::container<std::string>(rc::gen::inRange<char>(1, 127)));
  };
  Settings s;
  s.resume = *rc::gen::arbitrary<bool>();
  s.tokens = *rc::gen::nonNegative<std::int64_t>();
  s.seed = *rc::gen::arbitrary<std::uint64_t>();
  s.rate = *rc::gen::map(rc::gen::arbitrary<std::uint64_t>(), [](std::uint64_t bits) {
    return static_cast<double>(bits >> 11) * 0x1.0p-53;
  });
  s.name = text();
  s.train = {text(), text()};
  s.weights = {finite_double(), finite_double(), finite_double()};
  if (*rc::gen::arbitrary<bool>()) s.base = text();
  const float tau = std::bit_cast<float>(*rc::gen::arbitrary<std::uint32_t>());
  if (std::isfinite(tau) && tau >= 1e-5f) s.focus.temperature = tau;
  s.focus.gate = *rc::gen::arbitrary<bool>() ? Gate::kAffinity : Gate::kLogit;
  RC_ASSERT(read(dump_config(s)) == s);
  RC_ASSERT(read(dump_config(s, true)) == s);
}

struct Sections {
  struct Inner {
    int width = 1;
    std::string kind = "plain";
    void visit(auto&& f) {
      f("width", width, "of it");
      f("kind", kind, "of it");
    }
  } inner;
  int size = 1;
  void visit(auto&& f) {
    f("inner", inner, "a group");
    f("size", size, "of all");
  }
};

TEST(Config, AProblemThatIsFoundLaterNamesItsPlace) {
  const std::string text = "size: 3\ninner:\n  kind: old\n  width: 4\n";
  const auto place = [&](const std::string& problem, const std::vector<std::string>& overrides) {
    return place_of_setting(problem, text, "r.yaml", overrides);
  };
  EXPECT_EQ(place("inner.width must be 5, not 4", {}), "r.yaml:4: ");
  EXPECT_EQ(place("size: too few", {"inner.width=6"}), "r.yaml:1: ");
  EXPECT_EQ(place("inner.width is 7", {"inner.width=6", "inner.width=7"}),
            "override inner.width=7: ");
  EXPECT_EQ(place("inner.form is wrong", {}), "");
  EXPECT_EQ(place("", {}), "");
}

enum class Side { left, right };
constexpr auto enum_names(Side) { return std::array<std::string_view, 2>{"left", "right"}; }

struct Inner {
  std::int64_t count = 0;

  void visit(auto&& f) { f("count", count); }
};

struct Outer {
  std::string name = "a";
  double value = 0.5;
  Side side = Side::right;
  std::optional<bool> known = {};
  std::optional<double> more = {};
  std::optional<Inner> part = {};
  std::vector<Inner> list = {{1}, {2}};
  std::vector<std::pair<std::string, Inner>> members = {{"z", {3}}, {"b", {4}}};
  int twice = 4;

  void visit(auto&& f) {
    int half = twice / 2;
    FOCUS_MEMBERS(f, name, value, side, known);
    f.maybe("more", more);
    f.part("count", part);
    FOCUS_MEMBERS(f, list, members, half);
    twice = 2 * half;
  }
};

const std::string kText =
    R"({"name":"a","value":0.5,"side":"right","known":null,"list":[{"count":1},{"count":2}],)"
    R"("members":{"z":{"count":3},"b":{"count":4}},"half":2})";

TEST(StructJson, IsWrittenInTheOrderOfItsVisit) {
  EXPECT_EQ(struct_to_json(Outer{}).dump(), kText);
  const auto full = struct_to_json(Outer{.value = NAN, .known = true, .more = 2, .part = Inner{7}});
  EXPECT_EQ(full.dump().substr(0, 74),
            R"({"name":"a","value":null,"side":"right","known":true,"more":2.0,"count":7,)");
}

TEST(StructJson, IsReadAsItWasWritten) {
  for (const Outer& outer : {Outer{}, Outer{.name = "b",
                                      .side = Side::left,
                                      .known = false,
                                      .more = INFINITY,
                                      .part = Inner{7},
                                      .list = {},
                                      .members = {},
                                      .twice = 8}}) {
    // Objects of nlohmann::json are sorted; the pairs' order is not kept in reading.
    const nlohmann::json written = struct_to_json(outer);
    const auto read = struct_from_json<Outer>(written, "here");
    EXPECT_EQ(nlohmann::json(struct_to_json(read)), written);
    EXPECT_EQ(read.twice, outer.twice);
  }
}

TEST(StructJson, KeysThatAreNotThereAreNullIfTheyMayBe) {
  nlohmann::json json = nlohmann::json::parse(kText);
  json.erase("known");
  json["another"] = 1;
  EXPECT_EQ(struct_to_json(struct_from_json<Outer>(json, "here")).dump().size(), kText.size());
}

TEST(StructJson, WhatDoesNotFitIsNamedWithItsPlace) {
  const auto refusal = [](const char* key, const nlohmann::json& value) -> std::string {
    nlohmann::json json = nlohmann::json::parse(kText);
    if (value.is_discarded())
      json.erase(key);
    else
      json[key] = value;
    try {
      struct_from_json<Outer>(json, "here");
      return "";
    } catch (const std::runtime_error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(refusal("name", nlohmann::json(nlohmann::json::value_t::discarded)),
            "here: \"name\" is missing");
  EXPECT_EQ(refusal("name", 3), "here.name: expected a string, found number");
  EXPECT_EQ(refusal("value", "3"), "here.value: expected a number, found string");
  EXPECT_EQ(refusal("value", nullptr), "");
  EXPECT_EQ(refusal("side", "up"), "here.side: expected one of left, right, found string");
  EXPECT_EQ(refusal("known", 1), "here.known: expected true or false, found number");
  EXPECT_EQ(refusal("half", -1), "here.half: -1 is not in the range 0 to 2147483646");
  EXPECT_EQ(refusal("list", {{{"count", 1}}, {{"count", "2"}}}),
            "here.list[1].count: expected a whole number, found string");
  EXPECT_EQ(refusal("members", nullptr), "here.members: expected an object, found null");
  EXPECT_THROW(struct_from_json<Outer>(nlohmann::json::array(), "here"), std::runtime_error);
}

}  // namespace
}  // namespace focus
