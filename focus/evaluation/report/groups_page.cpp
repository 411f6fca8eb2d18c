#include "focus/evaluation/report/groups_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "focus/evaluation/report/charts.h"
#include "focus/evaluation/report/html_report.h"

namespace focus {
namespace {

constexpr std::string_view kGroupsStyle = R"(
.passage { white-space: pre-wrap; line-height: 1.9; max-width: none; }
.passage span { border-radius: 3px; padding: .15em 0; }
.key { font-size: .85rem; max-width: none; } .key span { padding: .1em .4em; border-radius: 3px; }
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

using NamedShares = std::vector<std::pair<std::string, std::vector<double>>>;

std::string text_of(const LayerAgreement& a) {
  const Agreement mean = a.mean();
  return fmt::format(
      "{} and {}: {:.3f} of the tokens keep their group, adjusted Rand {:.3f}, NMI {:.3f}", a.first,
      a.second, mean.kept, mean.rand, mean.information);
}

std::string name_of_grouping(const GroupsReport& report, std::size_t i) {
  const GroupAssignments& grouping = report.groupings[i];
  return report.per_head ? fmt::format("{}, {}", grouping.layer, grouping.head)
                         : fmt::format("{}", grouping.layer);
}

/// A row for each grouping.
Table groupings_table(const GroupsReport& report) {
  Table table{.header = {report.per_head ? "layer, head" : "layer", "largest", "smallest",
                         "size entropy", "confidence", "entropy", "purity", "one group", "NMI",
                         "beginnings", "one group"}};
  for (std::size_t i = 0; i < report.details.size(); ++i) {
    const GroupingDetails& d = report.details[i];
    table.rows.push_back(
        {name_of_grouping(report, i), percent_text(d.largest), percent_text(d.smallest),
         number_text(d.size_entropy, 3), number_text(d.mean_confidence, 3),
         number_text(report.groupings[i].entropy, 3), percent_text(d.purity.purity),
         percent_text(d.purity.base), number_text(d.purity.information, 3),
         percent_text(d.purity.word_beginnings), percent_text(d.purity.word_beginnings_base)});
  }
  return table;
}

/// The page of one report, part by part.
class GroupsPage {
 public:
  explicit GroupsPage(const GroupsReport& report)
      : report_(report), page_("Groups of " + short_name(report.model)) {
    page_.style(kGroupsStyle);
    for (Index g = 0; g < report.groups; ++g)  // hues a golden angle apart
      page_.style(
          fmt::format(".g{} {{ background: hsl({} 80% 50% / .33); }}\n", g, (g * 137 + 210) % 360));
  }

  std::string html() {
    begin();
    layers_table();
    agreements();
    for (Index layer = 0; layer < report_.layers; ++layer) {
      page_.heading(fmt::format("Layer {}", layer));
      for (Index head = 0; head < report_.heads; ++head) {
        const bool folded = report_.heads > 1;
        if (folded)
          page_.figure(fmt::format("<details{}><summary>layer {}, key head {}</summary>\n",
                                   layer + head == 0 ? " open" : "", layer, head));
        one_grouping(static_cast<std::size_t>(layer * report_.heads + head));
        if (folded) page_.figure("</details>\n");
      }
    }
    return page_.html();
  }

 private:
  bool is_keys() const { return report_.per_head; }

  void begin() {
    page_.paragraph(fmt::format(
        "{}{}: {} tokens of {}, in windows of {}; attention {}; K = {} groups in each of {}.",
        short_name(report_.model),
        report_.adapter.empty() ? "" : " with " + short_name(report_.adapter),
        report_.text.tokens(),
        report_.text.names.size() == 1 ? short_name(report_.text.names.front())
                                       : fmt::format("{} documents", report_.text.names.size()),
        report_.context, report_.attention, report_.groups,
        is_keys()
            ? fmt::format("{} layers' {} key heads, by the keys", report_.layers, report_.heads)
            : fmt::format("{} layers, by the hidden states", report_.layers)));
    page_.paragraph(
        "Group numbers are arbitrary: group 3 of one layer is unrelated to group 3 of another. "
        "Categories are determined by character class and closed lists of English function words.");
  }

  void layers_table() {
    page_.heading("Sizes, balance, purity");
    page_.table(groupings_table(report_));
    page_.paragraph(fmt::format(
        "Balanced groups would have {} each. size entropy: entropy of the sizes over log K, 1 if "
        "all "
        "are equal. confidence: mean share of a token in its group; entropy: of its shares, in "
        "nats. "
        "purity: share of tokens in the largest category of their group; NMI: normalised mutual "
        "information with the categories; beginnings: the same purity for whether a word begins "
        "with "
        "the token; one group: the value if all tokens were in one group.",
        percent_text(1.0 / static_cast<double>(report_.groups))));
    NamedShares sizes;
    std::vector<std::string> header = {is_keys() ? "layer, head" : "layer"};
    for (Index g = 0; g < report_.groups; ++g) header.push_back(fmt::format("{}", g));
    for (std::size_t i = 0; i < report_.details.size(); ++i) {
      std::vector<double>& shares =
          sizes.emplace_back(name_of_grouping(report_, i), std::vector<double>()).second;
      for (const std::int64_t size : report_.details[i].sizes)
        shares.push_back(static_cast<double>(size) / static_cast<double>(report_.text.tokens()));
    }
    page_.shares_table("Group sizes, % of the tokens", header, sizes, 1, 100);
  }

  void agreements() {
    if (report_.layers > 1) {
      page_.heading("Agreement between layers");
      page_.paragraph(
          "Two groupings of the same tokens are compared; for the adjusted Rand index 0 is chance "
          "and 1 the same grouping." +
          std::string(is_keys()
                          ? " Means over pairs of heads; a layer with itself: different heads."
                          : ""));
      for (const auto& [caption, figure] :
           {std::pair{"Adjusted Rand index", &Agreement::rand},
            std::pair{"Normalised mutual information", &Agreement::information}}) {
        std::vector<std::string> header = {"layer"};
        NamedShares rows;
        for (Index a = 0; a < report_.layers; ++a) {
          header.push_back(fmt::format("{}", a));
          auto& row = rows.emplace_back(header.back(), std::vector<double>()).second;
          for (Index b = 0; b < report_.layers; ++b)
            row.push_back(report_.between[static_cast<std::size_t>(a * report_.layers + b)].*
                          figure);
        }
        page_.shares_table(caption, header, rows, 2, 1);
      }
    }
    if (report_.against) agreement_table("Compared with another adapter", {*report_.against});
    if (report_.checkpoints.empty()) return;
    agreement_table("Stability between checkpoints", report_.checkpoints);
    Chart chart{.title = "Share of tokens that keep their group",
                .x_label = "checkpoint",
                .y_label = "share"};
    for (std::size_t layer = 0; layer < report_.checkpoints[0].layers.size(); ++layer)
      for (std::size_t c = 0; c < report_.checkpoints.size(); ++c)
        chart.add(fmt::format("layer {}", layer),
                  {static_cast<double>(c + 1), report_.checkpoints[c].layers[layer].kept});
    if (report_.checkpoints.size() > 1) page_.figure(line_chart(chart));
  }

  void agreement_table(const std::string& heading, const std::vector<LayerAgreement>& all) {
    page_.heading(heading);
    // Two names are said once; of checkpoints each row says its own.
    const bool pairs = all.size() > 1;
    page_.paragraph((pairs ? "" : fmt::format("{} and {}. ", all[0].first, all[0].second)) +
                    "keep their group: share of tokens whose groups correspond under the "
                    "one-to-one matching with the largest such share.");
    Table table{.header = {"layer", "keep their group", "adjusted Rand index", "NMI"}};
    if (pairs) table.header.insert(table.header.begin(), {"from", "to"});
    for (const LayerAgreement& one : all) {
      const auto row = [&](const std::string& layer, const Agreement& a) {
        auto& cells = table.rows.emplace_back();
        if (pairs) cells = {one.first, one.second};
        for (const std::string& cell :
             {layer, fmt::format("{:.3f}", a.kept), fmt::format("{:.3f}", a.rand),
              fmt::format("{:.3f}", a.information)})
          cells.push_back(cell);
      };
      row("mean", one.mean());
      for (std::size_t layer = 0; layer < one.layers.size(); ++layer)
        row(fmt::format("{}", layer), one.layers[layer]);
    }
    page_.table(table);
  }

  void one_grouping(std::size_t i) {
    passage(i);
    typical(report_.details[i]);
    categories(report_.details[i]);
  }

  std::string list_of(const std::vector<TypicalToken>& tokens, std::size_t most) const {
    std::string text;
    for (const TypicalToken& token : tokens)
      if (most-- > 0) text += " " + visible(report_.vocabulary.at(token.id));
    return text;
  }

  void passage(std::size_t i) {
    if (report_.passage_end <= report_.passage_first) return;
    const GroupAssignments& grouping = report_.groupings[i];
    std::string text = "<p class=\"passage\">";
    bool broken = false;  // a line break is to come before the next token that is not one
    for (Index t = report_.passage_first; t < report_.passage_end; ++t) {
      const auto at = static_cast<std::size_t>(t);
      const std::string& token = report_.text_at(t);
      if (broken && !token.starts_with('\n')) {
        text += '\n';
        broken = false;
      }
      broken |= token.ends_with('\n');
      text += fmt::format("<span class=\"g{0}\" title=\"{0}: {1:.2f}\">{2}</span>",
                          grouping.group_of_token[at], grouping.confidence[at], with_breaks(token));
    }
    text += "</p>\n<p class=\"key\">";
    for (Index g = 0; g < report_.groups && report_.groups <= 16; ++g)
      text += fmt::format(
          "<span class=\"g{0}\">{0}</span>{1} ", g,
          escape_html(list_of(report_.details[i].typical[static_cast<std::size_t>(g)].by_lift, 3)));
    page_.figure(text + "</p>\n");
  }

  void typical(const GroupingDetails& d) {
    Table table{
        .header = {"group", "share", "confidence", "mostly", "surest tokens", "tokens by lift"}};
    for (std::size_t g = 0; g < d.sizes.size(); ++g) {
      const TokenCategory largest = d.purity.largest[g];
      const double share =
          static_cast<double>(d.sizes[g]) / static_cast<double>(report_.text.tokens());
      table.rows.push_back(
          {fmt::format("{}", g), percent_text(share), number_text(d.confidence[g], 3),
           d.sizes[g] > 0
               ? fmt::format("{} {}", name_of(largest),
                             percent_text(d.purity.shares[g][static_cast<std::size_t>(largest)]))
               : "empty",
           list_of(d.typical[g].by_confidence, kAll), list_of(d.typical[g].by_lift, kAll)});
    }
    page_.table(table);
  }

  void categories(const GroupingDetails& d) {
    std::vector<std::string> header = {"group"};
    for (const std::string_view name : enum_names(TokenCategory{})) header.emplace_back(name);
    NamedShares rows;
    for (std::size_t g = 0; g < d.sizes.size(); ++g)
      rows.emplace_back(fmt::format("{}", g), d.purity.shares[g]);
    page_.shares_table("Categories of each group, %", header, rows, 0, 100);
  }

  static constexpr std::size_t kAll = 1000;

  const GroupsReport& report_;
  HtmlReport page_;
};

}  // namespace

std::string groups_table(const GroupsReport& report) {
  std::string text = plain_text(groupings_table(report), 1);
  if (report.against) text += text_of(*report.against) + "\n";
  for (const LayerAgreement& step : report.checkpoints) text += text_of(step) + "\n";
  return text;
}

std::string groups_page(const GroupsReport& report) { return GroupsPage(report).html(); }

}  // namespace focus
