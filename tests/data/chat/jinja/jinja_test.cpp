// Templates that are wrong or mean harm: each ends in one line. What right ones give is compared
// with Jinja itself in tests/golden/chat_golden_test.cpp.
#include <gtest/gtest.h>

#include "data/chat/jinja/template.h"

namespace focus::jinja {
namespace {

using Json = nlohmann::ordered_json;

std::string render(const std::string& source, const Json& variables = Json::object(),
                   const Limits& limits = {}) {
  return Template(source, "chat.jinja", limits).render(variables);
}

/// So that what hits a limit does so at once; the same checks as with the program's own limits.
constexpr Limits kSmall = {
    .source = 1 << 20, .steps = 1000000, .bytes = 1 << 23, .output = 1 << 22};

/// The line that a template ends in, when it is read or when it is rendered.
std::string error_of(const std::string& source, const Json& variables = Json::object(),
                     const Limits& limits = {}) {
  try {
    return "no error, but: " + render(source, variables, limits).substr(0, 100);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

TEST(Jinja, AnErrorNamesFileLineAndThing) {
  for (const auto& [source, error] : std::vector<std::pair<std::string, std::string>>{
           {"a\n{% extends 'x' %}", "line 2: the tag 'extends' is not supported"},
           {"\n\n{{ x | urlize }}", "line 3: the filter 'urlize' is not supported"},
           {"{{ x | shout }}", "line 1: the filter 'shout' is unknown"},
           {"{% if x is loud %}{% endif %}", "line 1: the test 'loud' is unknown"},
           {"{{ 1\n}}{% shout %}", "line 2: an unknown tag 'shout'"},
           {"{% for x in y recursive %}{% endfor %}",
            "line 1: a recursive for loop is not supported"},
           {"{{ f(*x) }}", "line 1: '*' in the arguments of a call is not supported"},
           {"{{ cycler('a') }}", "line 1: the global function 'cycler' is not supported"},
           {"{% if x %}\nb", "line 2: the template ends before 'elif' or 'else' or 'endif'"},
           {"{{ x.y }}", "line 1: 'x' is undefined"},
           {"a\n{{ {}.x.y }}", "line 2: a dict has no attribute 'x'"},
           {"{{ raise_exception('roles\nalternate') }}",
            "line 1: the template refuses these messages: roles\\nalternate"},
           {"{{ 'a\x01' | x }}\x02", "line 1: the filter 'x' is unknown"},
           {"{{ 9223372036854775808 + 1 }}",
            "line 1: the number 9223372036854775808 does not fit in 64 bits"},
           {"{{ 9223372036854775807 + 1 }}", "line 1: the result of '+' does not fit in 64 bits"}})
    EXPECT_EQ(error_of(source), "chat.jinja: " + error);
}

/// Templates that end in a line with this part.
void expect_refused(const std::vector<std::pair<std::string, std::string>>& cases,
                    const Limits& limits = {}) {
  for (const auto& [source, part] : cases)
    EXPECT_NE(error_of(source, Json::object(), limits).find(part), std::string::npos)
        << source.substr(0, 100);
}

TEST(Jinja, NothingRunsForLong) {
  const std::string many = "{% for a in range(100000) %}", end = "{% endfor %}";
  expect_refused({{many + many + many + end + end + end, "more than"},
                  {"{{ range(1000000000) }}", "line 1: range() has more than 100000 numbers"},
                  {"{{ 'a' * 10000000000 }}", "bytes"},
                  {"{{ [0] * 10000000000 }}", "bytes"},
                  {"{{ 'a'.ljust(10000000000) }}", "too large"},
                  {"{{ '%9999999d' % 1 }}", "width"},
                  {"{{ 'a'|indent(99999999) }}", "spaces"},
                  {"{{ 10 ** 1000000000 }}", "64 bits"}});
  expect_refused({{many + "{{ a }}" + many + "{{ a }}" + end + end, "more than"}}, kSmall);
  // A text that doubles, replaced and joined.
  const std::string doubled =
      "{% set s = namespace(t='aaaaaaaaaaaaaaaa') %}{% for i in range(64) %}";
  for (const std::string step :
       {"s.t + s.t", "s.t ~ s.t", "s.t.replace('a', 'aa')",
        "s.t|replace('a', 'bb')|replace('b', 'a')", "[s.t, s.t]|join", "''.join([s.t, s.t])",
        "'%s%s' % (s.t, s.t)", "'{}{}'.format(s.t, s.t)", "s.t * 2", "[s.t, s.t]|tojson",
        "[s.t, s.t]|string"})
    expect_refused({{doubled + "{% set s.t = " + step + " %}" + end, "more than"}}, kSmall);
}

TEST(Jinja, SharedListsDoNotMultiply) {
  // 2^64 leaves when it is printed or compared.
  const std::string tree =
      "{% set s = namespace(t=[1], u=[1]) %}{% for i in range(64) %}"
      "{% set s.t = [s.t, s.t] %}{% set s.u = [s.u, s.u] %}{% endfor %}";
  for (const std::string use : {"s.t", "s.t|tojson", "s.t == s.u", "s.t|string", "s.t in [s.u]"})
    expect_refused({{tree + "{{ " + use + " }}", "more than"}}, kSmall);
}

TEST(Jinja, NothingNestsTooDeep) {
  const auto times = [](int n, const std::string& text) {
    std::string all;
    for (int i = 0; i < n; ++i) all += text;
    return all;
  };
  for (const auto& [open, close] : {std::pair{"(", ")"},
                                    {"[", "]"},
                                    {"{1:", "}"},
                                    {"x[", "]"},
                                    {"f(", ")"},
                                    {"not ", ""},
                                    {"- ", ""},
                                    {"1 if 1 else ", ""}})
    expect_refused({{"{{ " + times(20000, open) + "1" + times(20000, close) + " }}", "deeper"}});
  for (const std::string chain : {" + 1", "|upper", ".x", "[0]", "()", " * 2", " and 1"})
    expect_refused({{"{{ 1" + times(20000, chain) + " }}", "deeper"}});
  expect_refused(
      {{times(20000, "{% if 1 %}") + times(20000, "{% endif %}"), "deeper"},
       {"{% set s = namespace(t=[]) %}{% for i in range(9999) %}{% set s.t = [s.t] %}{% endfor %}",
        "deeper"},
       {"{% set s = namespace() %}{% set s.s = s %}{{ s }}", "itself"},
       {"{% macro m(x) %}{{ m(x + 1) }}{% endmacro %}{{ m(1) }}",
        "chat.jinja: line 1: the template calls itself deeper than 1000 levels"},
       {"{% macro m() %}{% if 1 %}{% for i in [1] %}{% set x %}{{ [m()]|map('upper')|join }}"
        "{% endset %}{{ x }}{% endfor %}{% endif %}{% endmacro %}{{ m() }}",
        "deeper"}});
}

TEST(Jinja, LimitsHoldWhereTheyAreSet) {
  EXPECT_EQ(error_of("abcdef", {}, {.source = 5}),
            "chat.jinja: the template has 6 bytes; at most 5 are read");
  EXPECT_EQ(error_of("{{ 'a' * 5 }}b", {}, {.output = 5}),
            "chat.jinja: line 1: the template writes more than 5 bytes");
  EXPECT_EQ(render("{{ 'a' * 5 }}", {}, {.output = 5}), "aaaaa");
  EXPECT_EQ(error_of("{{ 1 + 1 + 1 }}", {}, {.steps = 3}),
            "chat.jinja: line 1: the template takes more than 3 steps");
}

TEST(Jinja, AnUnknownFilterOrTestDoesHarmOnlyWhereItRuns) {
  EXPECT_EQ(render("{% if x %}{{ x | shout(1) }}{% endif %}{{ 1 if 1 or 2 is loud }}"), "1");
  EXPECT_EQ(error_of("{% if x %}\n{{ x | shout(1) }}{% endif %}", {{"x", 1}}),
            "chat.jinja: line 2: the filter 'shout' is unknown");
}

TEST(Jinja, WholeNumbersBeyond64BitsArePrintedAndCompared) {
  const std::string big = "123456789012345678901234567890";
  EXPECT_EQ(render("{{ x }} {{ [x]|tojson }} {{ x|int }} {{ x is integer }} {{ x == x + 0 if 0 }}",
                   {{"x", UINT64_MAX}}),
            "18446744073709551615 [18446744073709551615] 18446744073709551615 True ");
  EXPECT_EQ(render("{{ " + big + " }} {{ 1 < " + big + " }} {{ " + big + " < " + big + "1 }} {{ " +
                   big + " == " + big + " }}"),
            big + " True True True");
}

TEST(Jinja, TheAssistantsPartsAreMarked) {
  const Template chat(
      "a{% generation %}bc{% endgeneration %}d{% set x %}{% generation %}e"
      "{% endgeneration %}{% endset %}{% for i in [1, 2] %}{% generation %}{{ i }}"
      "{% endgeneration %}{% endfor %}",
      "chat.jinja");
  TextRanges marked;
  EXPECT_EQ(chat.render(Json::object(), std::nullopt, &marked), "abcd12");
  EXPECT_EQ(marked, (TextRanges{{1, 3}, {4, 5}, {5, 6}}));
}

TEST(Jinja, TheAssistantsPartsAreMarkedInWhatAMacroOrABlockWrites) {
  const auto marked = [](const std::string& source) {
    TextRanges ranges;
    const std::string text =
        Template(source, "chat.jinja").render(Json::object(), std::nullopt, &ranges);
    std::string parts;
    for (const auto& [begin, end] : ranges) parts += text.substr(begin, end - begin) + ";";
    return text + " " + parts;
  };
  const std::string answer = "{% generation %}a{{ x }}{% endgeneration %}",
                    macro = "{% macro turn(x) %}<" + answer + ">{% endmacro %}";
  EXPECT_EQ(marked(macro + "b{{ turn(1) }}{{ turn(2) }}c{% generation %}d{% endgeneration %}"),
            "b<a1><a2>cd a1;a2;d;");
  EXPECT_EQ(marked("{% set x = 3 %}{% set text %}<" + answer + ">{% endset %}b{{ text }}"),
            "b<a3> a3;");
  EXPECT_EQ(marked("{% set x = 3 %}{% filter trim %} <" + answer + "> {% endfilter %}"),
            "<a3> a3;");
  EXPECT_EQ(marked("{% set x = 4 %}{% macro box() %}[{{ caller() }}]{% endmacro %}"
                   "{% call box() %}" +
                   answer + "{% endcall %}"),
            "[a4] a4;");
  // Marks that would change what is written do not count.
  EXPECT_EQ(marked(macro + "{{ turn(1)|length }}"), "4 ");
  EXPECT_EQ(marked(macro + "\uFDD0{{ turn(1) }}\uFDD1"), "\uFDD0<a1>\uFDD1 ");
}

TEST(Jinja, AMacroOutlivesNoBlock) {
  EXPECT_EQ(
      error_of("{% set s = namespace() %}{% for i in [1] %}{% macro m() %}{{ i }}{% endmacro %}"
               "{% set s.m = m %}{% endfor %}\n{{ s.m() }}"),
      "chat.jinja: line 2: the macro 'm' was defined in a block that has ended");
  EXPECT_EQ(render("{% set s = namespace() %}{% for i in [1] %}{% set s.l = loop %}{% endfor %}"
                   "{{ s.l.length }}"),
            "1");
}

TEST(Jinja, InvalidUtf8GoesThrough) {
  EXPECT_EQ(render("a\xff{{ x|upper }}{{ '\xc3' ~ x[0] }}", {{"x", "ab"}}).substr(0, 2), "a\xff");
  EXPECT_EQ(render("{{ '\xe2\x82'|length }}{{ ('\xf0\x9f' ~ 'a')[::-1][0] }}"), "2a");
}

TEST(Jinja, TheTimeIsGivenOrThePresent) {
  const Template date("{{ strftime_now('%d %b %Y') }}", "chat.jinja");
  std::tm then{};
  then.tm_year = 124;
  then.tm_mon = 6;
  then.tm_mday = 26;
  EXPECT_EQ(date.render(Json::object(), then), "26 Jul 2024");
  EXPECT_EQ(date.render(Json::object()).size(), 11u);
}

TEST(Jinja, ATemplateRendersAgain) {
  const Template count("{% set s = namespace(n=n) %}{% set s.n = s.n + 1 %}{{ s.n }}",
                       "chat.jinja");
  EXPECT_EQ(count.render({{"n", 1}}), "2");
  EXPECT_EQ(count.render({{"n", 1}}), "2");
}

}  // namespace
}  // namespace focus::jinja
