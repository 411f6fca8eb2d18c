#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "focus/evaluation/report/html_report.h"
#include "focus/evaluation/statistics/groups_report.h"

namespace focus {
namespace {

// Details that a page shows at most, so that a browser opens it at once; groups.json has all.
constexpr std::size_t kMostGroupings = 64;
constexpr std::size_t kMostRows = 1024;  // groups of all these groupings, and not fewer than
constexpr std::size_t kLeastRows = 8;    // so many of each
constexpr Index kMostColumns = 32;       // groups that a table has beside each other

constexpr std::string_view kGroupsStyle = R"(
.passage { white-space: pre-wrap; line-height: 1.9; max-width: none; }
.passage i { font-style: normal; border-radius: 3px; padding: .15em 0; position: relative; }
.passage i:hover::after {
  content: attr(class); position: absolute; left: 0; bottom: 100%; z-index: 1; padding: 0 .4em;
  font-size: .8rem; line-height: 1.5; background: var(--ink); color: var(--page);
}
.key { font-size: .85rem; max-width: none; } .key i { padding: .1em .4em; border-radius: 3px; }
summary { cursor: pointer; font-weight: 600; margin: .8rem 0; }
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

std::string text_of(const LayerAgreement& a) {
  const Agreement mean = a.mean();
  return fmt::format(
      "{} and {}: {:.3f} of the tokens keep their group, adjusted Rand {:.3f}, NMI {:.3f}\n",
      a.first, a.second, mean.kept, mean.rand, mean.information);
}

std::string name_of_grouping(const GroupingDetails& d) {
  return d.head ? fmt::format("{}, {}", d.layer, *d.head) : fmt::format("{}", d.layer);
}
double share_of(const GroupingDetails::Group& group, const GroupsReport& report) {
  return static_cast<double>(group.size) / static_cast<double>(report.text.tokens());
}
const char* names_of_groupings(const GroupsReport& report) {
  return report.per_head ? "layer, head" : "layer";
}

/// Columns "0", "1", ... of shares behind a first column.
Table shares_table(const std::string& caption, const std::string& first, Index columns,
                   double whole) {
  Table table{.caption = caption, .header = {first}, .whole = whole};
  for (Index i = 0; i < columns; ++i) table.header.push_back(fmt::format("{}", i));
  return table;
}

/// The places of those that a page shows, of many groupings or groups.
std::vector<std::size_t> evenly_spaced(std::size_t all) {
  const std::size_t step = (all + kMostGroupings - 1) / kMostGroupings;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < all; i += step) places.push_back(i);
  return places;
}
std::vector<std::size_t> largest_groups(const GroupingDetails& d, std::size_t most) {
  std::vector<std::size_t> places(d.groups.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  if (places.size() <= most) return places;
  std::ranges::stable_sort(places, std::greater(), [&](std::size_t g) { return d.groups[g].size; });
  places.resize(most);
  return places;
}

/// A row for each of these groupings.
Table groupings_table(const GroupsReport& report, std::span<const std::size_t> places) {
  Table table{.header = {names_of_groupings(report), "largest", "smallest", "size entropy",
                         "confidence", "entropy", "purity", "one group", "NMI", "beginnings",
                         "one group"}};
  for (const std::size_t i : places) {
    const GroupingDetails& d = report.details[i];
    table.rows.push_back(
        {name_of_grouping(d), percent_text(d.largest_group), percent_text(d.smallest_group),
         number_text(d.size_entropy, 3), number_text(d.confidence, 3),
         number_text(d.assignment_entropy, 3), percent_text(d.purity.categories),
         percent_text(d.purity.categories_base), number_text(d.purity.information, 3),
         percent_text(d.purity.word_beginnings), percent_text(d.purity.word_beginnings_base)});
  }
  return table;
}

double mean_over(const GroupsReport& report, auto figure) {
  double sum = 0;
  for (const GroupingDetails& d : report.details) sum += std::invoke(figure, d);
  return sum / static_cast<double>(report.details.size());
}

/// Mean adjusted Rand index of different layers.
double agreement_of_layers(const GroupsReport& report) {
  double sum = 0;
  for (Index a = 0; a < report.layers; ++a)
    for (Index b = 0; b < a; ++b) sum += report.between_layers.rand[a][b];
  return sum / (0.5 * static_cast<double>(report.layers * (report.layers - 1)));
}

/// The figures that answer most questions.
Table found_table(const GroupsReport& report) {
  const auto purity = [](double Purity::*figure) {
    return [figure](const GroupingDetails& d) { return d.purity.*figure; };
  };
  const std::string groups = fmt::format(
      "{} in each of {}", report.num_groups,
      report.per_head
          ? fmt::format("{} layers' {} key heads, by the keys", report.layers, report.heads)
          : fmt::format("{} layers, by the hidden states", report.layers));
  Table table{.header = {"figure", "value"}, .rows = {{"groups", groups}}};
  const auto add = [&](const std::string& name, const std::string& value) {
    table.rows.push_back({name, value});
  };
  add("attention", report.attention);
  if (report.pairs_attended)
    add("attention density",
        percent_text(report.pairs_attended) + " of the causal pairs are computed");
  add("how even", fmt::format("size entropy {:.3f} (1: all of one size)",
                              mean_over(report, &GroupingDetails::size_entropy)));
  add("group sizes", fmt::format("{} to {} of the tokens, {} if all were equal",
                                 percent_text(mean_over(report, &GroupingDetails::smallest_group)),
                                 percent_text(mean_over(report, &GroupingDetails::largest_group)),
                                 percent_text(1.0 / static_cast<double>(report.num_groups))));
  add("how sure", fmt::format("mean share of a token in its group {:.3f}",
                              mean_over(report, &GroupingDetails::confidence)));
  add("what they hold",
      fmt::format("{} of the tokens are of their group's largest category; of one group {}",
                  percent_text(mean_over(report, purity(&Purity::categories))),
                  percent_text(mean_over(report, purity(&Purity::categories_base)))));
  if (report.layers > 1)
    add("between layers", fmt::format("adjusted Rand index {:.3f} (1: the same groups, 0: chance)",
                                      agreement_of_layers(report)));
  if (report.against)
    add("against " + short_name(report.against->second),
        percent_text(report.against->mean().kept) + " of the tokens keep their group");
  return table;
}

void add_begin(HtmlReport& page, const GroupsReport& report) {
  page.paragraph(fmt::format(
      "{}{}: {} tokens of {}, in windows of {}.", short_name(report.model),
      report.adapter.empty() ? "" : " with " + short_name(report.adapter), report.text.tokens(),
      report.text.names.size() == 1 ? short_name(report.text.names.front())
                                    : fmt::format("{} documents", report.text.names.size()),
      report.context));
  page.table(found_table(report));
}

void add_sizes(HtmlReport& page, const GroupsReport& report, std::span<const std::size_t> places) {
  page.heading("Sizes, balance, purity");
  if (places.size() < report.details.size())
    page.paragraph(fmt::format("{} of the {} {} are shown here; groups.json has all.",
                               places.size(), report.details.size(),
                               report.per_head ? "key heads" : "layers"));
  page.table(groupings_table(report, places));
  page.paragraph(fmt::format(
      "Balanced groups would have {} each. size entropy: entropy of the sizes over log K, 1 if all "
      "are equal. confidence: mean share of a token in its group; entropy: of its shares, in nats. "
      "purity: share of tokens in the largest category of their group; NMI: normalised mutual "
      "information with the categories; beginnings: the same purity for whether a word begins with "
      "the token; one group: the value if all tokens were in one group.",
      percent_text(1.0 / static_cast<double>(report.num_groups))));
  if (report.num_groups > kMostColumns) return;
  Table sizes = shares_table("Group sizes, % of the tokens", names_of_groupings(report),
                             report.num_groups, 100);
  for (const std::size_t i : places) {
    const GroupingDetails& d = report.details[i];
    auto& cells = sizes.rows.emplace_back(std::vector{name_of_grouping(d)});
    for (const GroupingDetails::Group& group : d.groups)
      cells.push_back(number_text(100 * share_of(group, report), 1));
  }
  page.table(sizes);
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
    Table table = shares_table(caption, "layer", report.layers, 1);
    for (const std::vector<double>& row : *matrix) {
      auto& cells = table.rows.emplace_back(std::vector{table.header[table.rows.size() + 1]});
      for (const double figure : row) cells.push_back(number_text(figure, 2));
    }
    page.table(table);
  }
}

void add_agreements(HtmlReport& page, const std::string& heading,
                    const std::vector<LayerAgreement>& all) {
  page.heading(heading);
  // Two names are said once; of checkpoints each row says its own.
  const bool pairs = all.size() > 1;
  page.paragraph((pairs ? "" : fmt::format("{} and {}. ", all[0].first, all[0].second)) +
                 "keep their group: share of tokens whose groups correspond under the one-to-one "
                 "matching with the largest such share.");
  Table table{.header = {"layer", "keep their group", "adjusted Rand index", "NMI"}};
  if (pairs) table.header.insert(table.header.begin(), {"from", "to"});
  for (const LayerAgreement& one : all)
    for (std::size_t row = 0; row <= one.layers.size(); ++row) {
      const Agreement a = row == 0 ? one.mean() : one.layers[row - 1];
      auto& cells = table.rows.emplace_back();
      if (pairs) cells = {one.first, one.second};
      cells.push_back(row == 0 ? "mean" : fmt::format("{}", row - 1));
      for (const double figure : {a.kept, a.rand, a.information})
        cells.push_back(fmt::format("{:.3f}", figure));
    }
  page.table(table);
}

void add_checkpoints(HtmlReport& page, const std::vector<LayerAgreement>& checkpoints) {
  add_agreements(page, "Stability between checkpoints", checkpoints);
  Chart chart{.title = "Share of tokens that keep their group",
              .x_label = "checkpoint",
              .y_label = "share"};
  for (std::size_t c = 0; c < checkpoints.size(); ++c)
    for (std::size_t layer = 0; layer < checkpoints[c].layers.size(); ++layer)
      chart.add(fmt::format("layer {}", layer),
                {static_cast<double>(c + 1), checkpoints[c].layers[layer].kept});
  if (checkpoints.size() > 1) page.figure(line_chart(chart));
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

/// The tokens and, where not `brief`, the categories of these groups.
void add_groups(HtmlReport& page, const GroupsReport& report, const GroupingDetails& d,
                std::span<const std::size_t> places, bool brief) {
  Table tokens{
      .header = {"group", "share", "confidence", "mostly", "surest tokens", "tokens by lift"}};
  if (places.size() < d.groups.size())
    tokens.caption = fmt::format("The {} largest of {} groups", places.size(), d.groups.size());
  Table categories = shares_table("Categories of each group, %", "group", 0, 100);
  for (const std::string_view name : enum_names(TokenCategory{}))
    categories.header.emplace_back(name);
  for (const std::size_t place : places) {
    const GroupingDetails::Group& group = d.groups[place];
    const std::string number = fmt::format("{}", place);
    const std::string mostly =
        fmt::format("{} {}", name_of(group.category),
                    percent_text(group.categories[static_cast<std::size_t>(group.category)]));
    tokens.rows.push_back({number, percent_text(share_of(group, report)),
                           number_text(group.confidence, 3), group.size > 0 ? mostly : "empty",
                           list_of(group.by_confidence, brief ? 4 : 8),
                           list_of(group.by_lift, brief ? 4 : 8)});
    auto& cells = categories.rows.emplace_back(std::vector{number});
    for (const double share : group.categories) cells.push_back(number_text(100 * share, 0));
  }
  page.table(tokens);
  if (!brief) page.table(categories);
}

/// The grouping that tells most of the categories, with the passage.
void add_clearest(HtmlReport& page, const GroupsReport& report, std::size_t i) {
  const GroupingDetails& d = report.details[i];
  page.heading(fmt::format("A passage by the groups of layer {}{}", d.layer,
                           d.head ? fmt::format(", key head {}", *d.head) : ""));
  page.paragraph(fmt::format(
      "Each colour is a group; the pointer on a token shows its number. Of all {} these groups "
      "tell most of the tokens' categories, which are determined by character class and closed "
      "lists of English function words. Group numbers are arbitrary: group 3 of one layer is "
      "unrelated to group 3 of another.",
      report.per_head ? "key heads" : "layers"));
  add_passage(page, report, i);
  add_groups(page, report, d, largest_groups(d, kLeastRows), true);
}

void add_details(HtmlReport& page, const GroupsReport& report,
                 std::span<const std::size_t> places) {
  const std::size_t rows = std::max(kLeastRows, kMostRows / places.size());
  const bool folded = places.size() > 4;
  page.heading(report.per_head ? "Key heads" : "Layers");
  for (const std::size_t i : places) {
    const GroupingDetails& d = report.details[i];
    const std::string name =
        fmt::format("Layer {}{}", d.layer, d.head ? fmt::format(", key head {}", *d.head) : "");
    page.figure(folded ? fmt::format("<details><summary>{}</summary>\n", name)
                       : fmt::format("<h3>{}</h3>\n", name));
    add_passage(page, report, i);
    const auto largest = largest_groups(d, rows);
    add_groups(page, report, d, largest, largest.size() * places.size() * 4 > kMostRows);
    if (folded) page.figure("</details>\n");
  }
}

}  // namespace

std::string groups_table(const GroupsReport& report) {
  std::vector<std::size_t> all(report.details.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  std::string text = plain_text(groupings_table(report, all), 1);
  if (report.pairs_attended)
    text += fmt::format("attention {}: density {}\n", report.attention,
                        percent_text(report.pairs_attended));
  if (report.against) text += text_of(*report.against);
  for (const LayerAgreement& step : report.checkpoints) text += text_of(step);
  return text;
}

std::string groups_page(const GroupsReport& report) {
  HtmlReport page("Groups of " + short_name(report.model));
  page.style(kGroupsStyle);
  for (Index g = 0; g < report.num_groups; ++g)  // hues a golden angle apart
    page.style(
        fmt::format(".g{} {{ background: hsl({} 80% 50% / .33); }}\n", g, (g * 137 + 210) % 360));
  const std::vector<std::size_t> places = evenly_spaced(report.details.size());
  add_begin(page, report);
  add_clearest(page, report, *std::ranges::max_element(places, {}, [&](std::size_t i) {
                 return report.details[i].purity.information;
               }));
  add_sizes(page, report, places);
  if (report.against) add_agreements(page, "Compared with another adapter", {*report.against});
  if (!report.checkpoints.empty()) add_checkpoints(page, report.checkpoints);
  if (report.layers > 1) add_agreement_of_layers(page, report);
  add_details(page, report, places);
  return page.html();
}

}  // namespace focus
