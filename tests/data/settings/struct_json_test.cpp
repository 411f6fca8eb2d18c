#include "data/settings/struct_json.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "data/settings/members.h"

namespace focus {
namespace {

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
