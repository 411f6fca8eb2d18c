#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "focus/evaluation/report/html_report.h"
#include "focus/evaluation/statistics/groups_report.h"

namespace focus {
namespace {

constexpr std::size_t kMostGroups = 32;  // that a page shows of a grouping; groups.json has all

constexpr std::string_view kGroupsStyle = R"(
.passage { white-space: pre-wrap; line-height: 1.9; max-width: none; }
.passage i { font-style: normal; border-radius: 3px; padding: .15em 0; position: relative; }
.passage i:hover::after {
  content: attr(class); position: absolute; left: 0; bottom: 100%; z-index: 1; padding: 0 .4em;
  font-size: .8rem; line-height: 1.5; background: var(--ink); color: var(--page);
}
.key { font-size: .85rem; max-width: none; } .key i { padding: .1em .4em; border-radius: 3px; }
)";

/// Without the folders that it lies in.
std::string short_name(const std::string& path) {
  const std::size_t slash = path.find_last_not_of('/');
  const std::size_t begin = path.find_last_of('/', slash) + 1;
  return path.substr(begin, slash + 1 - begin);
}

/// With visible blanks and line breaks.
std::string visible(const std::string& text) {
  std::string shown;
  for (const char c : text) shown += c == ' ' ? "\u00B7" : c == '\n' ? "\u21B5" : std::string(1, c);
  return shown;
}

/// A token of the passage: its line breaks are seen, and those within it break the line.
std::string with_breaks(const std::string& token) {
  std::string shown;
  for (std::size_t i = 0; i < token.size(); ++i) {
    shown += token[i] == '\n' ? "\u21B5" : std::string(1, token[i]);
    const bool goes_on = i + 1 < token.size() && token[i + 1] != '\n';
    if (token[i] == '\n' && goes_on) shown += '\n';
  }
  return escape_html(shown);
}

std::string name_of_grouping(const GroupingDetails& d) {
  return d.head ? fmt::format("{}, {}", d.layer, *d.head) : fmt::format("{}", d.layer);
}
const char* names_of_groupings(const GroupsReport& report) {
  return report.per_head ? "layer, head" : "layer";
}

/// A row for each grouping.
Table groupings_table(const GroupsReport& report) {
  Table table{.header = {names_of_groupings(report), "largest", "smallest", "size entropy",
                         "confidence", "entropy", "purity", "one group", "NMI", "beginnings",
                         "one group"}};
  for (const GroupingDetails& d : report.details)
    table.rows.push_back(
        {name_of_grouping(d), percent_text(d.largest_group), percent_text(d.smallest_group),
         number_text(d.size_entropy, 3), number_text(d.confidence, 3),
         number_text(d.assignment_entropy, 3), percent_text(d.purity.categories),
         percent_text(d.purity.categories_base), number_text(d.purity.information, 3),
         percent_text(d.purity.word_beginnings), percent_text(d.purity.word_beginnings_base)});
  return table;
}

void add_begin(HtmlReport& page, const GroupsReport& report) {
  page.paragraph(fmt::format(
      "{}{}: {} tokens of {}, in windows of {}.", short_name(report.model),
      report.adapter.empty() ? "" : " with " + short_name(report.adapter), report.text.tokens(),
      report.text.names.size() == 1 ? short_name(report.text.names.front())
                                    : fmt::format("{} documents", report.text.names.size()),
      report.context));
  page.paragraph(fmt::format(
      "{} groups in each of {}; attention {}{}.", report.num_groups,
      report.per_head
          ? fmt::format("{} layers' {} key heads, by the keys", report.layers, report.heads)
          : fmt::format("{} layers, by the hidden states", report.layers),
      report.attention,
      report.pairs_attended ? fmt::format(", {} of the causal pairs are computed",
                                          percent_text(report.pairs_attended))
                            : ""));
}

void add_sizes(HtmlReport& page, const GroupsReport& report) {
  page.heading("Sizes, balance, purity");
  page.table(groupings_table(report));
  page.paragraph(fmt::format(
      "Balanced groups would have {} each. size entropy: entropy of the sizes over log K, 1 if all "
      "are equal. confidence: mean share of a token in its group; entropy: of its shares, in nats. "
      "purity: share of tokens in the largest category of their group; NMI: normalised mutual "
      "information with the categories; beginnings: the same purity for whether a word begins with "
      "the token; one group: the value if all tokens were in one group.",
      percent_text(1.0 / static_cast<double>(report.num_groups))));
}

void add_agreement_of_layers(HtmlReport& page, const GroupsReport& report) {
  page.heading("Agreement between layers");
  page.paragraph(
      "Two groupings of the same tokens are compared; for the adjusted Rand index 0 is chance and "
      "1 the same grouping." +
      std::string(report.per_head ? " Means over pairs of heads; a layer with itself: different "
                                    "heads."
                                  : ""));
  for (const auto& [caption, matrix] :
       {std::pair{"Adjusted Rand index", &report.between_layers.rand},
        std::pair{"Normalised mutual information", &report.between_layers.information}}) {
    Table table{.caption = caption, .header = {"layer"}, .whole = 1};
    for (Index layer = 0; layer < report.layers; ++layer)
      table.header.push_back(fmt::format("{}", layer));
    for (const std::vector<double>& row : *matrix) {
      auto& cells = table.rows.emplace_back(std::vector{table.header[table.rows.size() + 1]});
      for (const double figure : row) cells.push_back(number_text(figure, 2));
    }
    page.table(table);
  }
}

std::string list_of(const std::vector<TypicalToken>& tokens, std::size_t most = 1000) {
  std::string text;
  for (const TypicalToken& token : tokens)
    if (most-- > 0) text += " " + visible(token.text);
  return text;
}

void add_passage(HtmlReport& page, const GroupsReport& report, std::size_t i) {
  if (report.passage.tokens.empty()) return;
  std::string text = "<p class=\"passage\">";
  bool broken = false;  // a line break is to come before the next token that is not one
  for (const auto& [token, groups] : report.passage.tokens) {
    if (broken && !token.starts_with('\n')) {
      text += '\n';
      broken = false;
    }
    broken |= token.ends_with('\n');
    text += fmt::format("<i class=g{}>{}</i>", groups[i], with_breaks(token));
  }
  text += "</p>\n<p class=\"key\">";
  for (std::size_t g = 0; g < report.details[i].groups.size() && report.num_groups <= 16; ++g)
    text += fmt::format("<i class=g{0}>{0}</i>{1} ", g,
                        escape_html(list_of(report.details[i].groups[g].by_lift, 3)));
  page.figure(text + "</p>\n");
}

/// The grouping that tells most of the categories: the passage, and its largest groups.
void add_clearest(HtmlReport& page, const GroupsReport& report) {
  const auto clearest = std::ranges::max_element(
      report.details, {}, [](const GroupingDetails& d) { return d.purity.information; });
  const GroupingDetails& d = *clearest;
  page.heading(fmt::format("A passage by the groups of layer {}{}", d.layer,
                           d.head ? fmt::format(", key head {}", *d.head) : ""));
  page.paragraph(fmt::format(
      "Each colour is a group; the pointer on a token shows its number. Of all {} these groups "
      "tell most of the tokens' categories, which are determined by character class and closed "
      "lists of English function words. Group numbers are arbitrary: group 3 of one layer is "
      "unrelated to group 3 of another. groups.json has the other {}.",
      report.per_head ? "key heads" : "layers", report.per_head ? "heads" : "layers"));
  add_passage(page, report, clearest - report.details.begin());
  Table table{
      .header = {"group", "share", "confidence", "mostly", "surest tokens", "tokens by lift"}};
  std::vector<std::size_t> places(d.groups.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  if (places.size() > kMostGroups) {
    std::ranges::stable_sort(places, std::greater(),
                             [&](std::size_t g) { return d.groups[g].size; });
    places.resize(kMostGroups);
    table.caption = fmt::format("The {} largest of {} groups", kMostGroups, d.groups.size());
  }
  for (const std::size_t place : places) {
    const GroupingDetails::Group& group = d.groups[place];
    const std::string mostly =
        fmt::format("{} {}", name_of(group.category),
                    percent_text(group.categories[static_cast<std::size_t>(group.category)]));
    table.rows.push_back(
        {fmt::format("{}", place),
         percent_text(static_cast<double>(group.size) / static_cast<double>(report.text.tokens())),
         number_text(group.confidence, 3), group.size > 0 ? mostly : "empty",
         list_of(group.by_confidence), list_of(group.by_lift)});
  }
  page.table(table);
}

}  // namespace

std::string groups_table(const GroupsReport& report) {
  std::string text = plain_text(groupings_table(report), 1);
  if (report.pairs_attended)
    text += fmt::format("attention {}: density {}\n", report.attention,
                        percent_text(report.pairs_attended));
  return text;
}

std::string groups_page(const GroupsReport& report) {
  HtmlReport page("Groups of " + short_name(report.model));
  page.style(kGroupsStyle);
  for (Index g = 0; g < report.num_groups; ++g)  // hues a golden angle apart
    page.style(
        fmt::format(".g{} {{ background: hsl({} 80% 50% / .33); }}\n", g, (g * 137 + 210) % 360));
  add_begin(page, report);
  add_clearest(page, report);
  add_sizes(page, report);
  if (report.layers > 1) add_agreement_of_layers(page, report);
  return page.html();
}

}  // namespace focus
