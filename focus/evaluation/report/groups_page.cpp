#include "focus/evaluation/report/groups_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "focus/evaluation/report/charts.h"
#include "focus/evaluation/report/html_report.h"
#include "focus/evaluation/report/plane.h"

namespace focus {
namespace {

constexpr Index kAround = 8;  // tokens on both sides of one of a far pair

constexpr std::string_view kGroupsStyle = R"(
.heat td { text-align: right; background: rgb(0 130 190 / calc(var(--h, 0) * .6)); }
.heat td:first-child { text-align: left; }
.heat th { font-size: .78rem; }
table.heat :is(th, td):is(:first-child, :not(:first-child)) { padding: .2rem .3rem; }
.tokens td { text-align: left; vertical-align: top; }
.tokens code, .far b { background: var(--grid); border-radius: 3px; padding: 0 .2em; }
.tokens code, .tokens td:nth-child(-n+4) { white-space: nowrap; }
.passage { white-space: pre-wrap; line-height: 1.9; max-width: none; }
.passage span { border-radius: 3px; padding: .15em 0; }
.key { font-size: .85rem; max-width: none; } .key span { padding: .1em .4em; border-radius: 3px; }
.far li { margin: .3rem 0; font-size: .92rem; } .far i { color: var(--soft); font-style: normal; }
summary { cursor: pointer; font-weight: 600; margin: .8rem 0; }
)";

/// Without the folders that it lies in.
std::string short_name(const std::string& path) {
  const std::size_t slash = path.find_last_not_of('/');
  const std::size_t begin = path.find_last_of('/', slash) + 1;
  return path.substr(begin, slash + 1 - begin);
}

/// A leading blank and line breaks made to be seen.
std::string visible(const std::string& text) {
  std::string shown;
  for (const char c : text) shown += c == ' ' ? "\u00B7" : c == '\n' ? "\u21B5" : std::string(1, c);
  return escape_html(shown);
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

/// A table whose cells are the darker the larger their number, from 0 to 1.
struct HeatTable {
  std::string caption;
  std::vector<std::string> header;
  std::vector<std::pair<std::string, std::vector<double>>> rows;

  std::string html(int digits, double factor) const {
    std::string text = fmt::format(
        "<div class=\"scroll\"><table class=\"wide heat\">\n<caption>{}</caption>\n<thead><tr>",
        escape_html(caption));
    for (const std::string& name : header)
      text += fmt::format("<th scope=\"col\">{}</th>", escape_html(name));
    text += "</tr></thead>\n<tbody>\n";
    for (const auto& [name, values] : rows) {
      text += fmt::format("<tr><td>{}</td>", escape_html(name));
      for (const double v : values)
        text += fmt::format("<td style=\"--h:{:.2f}\">{:.{}f}</td>", std::clamp(v, 0.0, 1.0),
                            factor * v, digits);
      text += "</tr>\n";
    }
    return text + "</tbody>\n</table></div>\n";
  }
};

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
  std::string name_of_grouping(std::size_t i) const {
    const GroupAssignments& grouping = report_.groupings[i];
    return is_keys()  // no-break spaces: wide tables would break the name
               ? fmt::format("layer\u00A0{}\u00A0head\u00A0{}", grouping.layer, grouping.head)
               : fmt::format("layer\u00A0{}", grouping.layer);
  }

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
    Table table{.header = {is_keys() ? "layer, head" : "layer", "largest", "smallest",
                           "size entropy", "confidence", "entropy", "spread", "purity", "one group",
                           "NMI", "beginnings", "one group"}};
    StackedBars bars{.title = "Group sizes, share of the tokens"};
    for (std::size_t i = 0; i < report_.details.size(); ++i) {
      const GroupingDetails& d = report_.details[i];
      table.rows.push_back(
          {name_of_grouping(i), percent_text(d.largest), percent_text(d.smallest),
           fmt::format("{:.3f}", d.size_entropy), fmt::format("{:.3f}", d.mean_confidence),
           fmt::format("{:.3f}", report_.groupings[i].entropy), percent_text(d.parts.spread),
           percent_text(d.purity.purity), percent_text(d.purity.base),
           fmt::format("{:.3f}", d.purity.information), percent_text(d.purity.word_beginnings),
           percent_text(d.purity.word_beginnings_base)});
      bars.rows.emplace_back(name_of_grouping(i),
                             std::vector<double>(d.sizes.begin(), d.sizes.end()));
    }
    page_.table(table);
    page_.paragraph(
        fmt::format("Balanced groups would have {} each. size entropy: entropy of the sizes over "
                    "log K, 1 if all are equal. confidence: mean share of a token in its group; "
                    "entropy: of its shares, in nats. spread: share of tokens that would have to "
                    "change their group for all {} to have the same size. purity: share of tokens "
                    "in the largest category of their group; NMI: normalised mutual information "
                    "with the categories; beginnings: the same purity for whether a word begins "
                    "with the token; one group: the value if all tokens were in one group.",
                    percent_text(1.0 / static_cast<double>(report_.groups)),
                    report_.text.names.size() > 1 ? "documents" : "parts of the text"));
    for (Index g = 0; g < report_.groups; ++g)
      bars.segment_names.push_back(fmt::format("group {}", g));
    page_.figure(stacked_bars_svg(bars));
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
        HeatTable heat{.caption = caption, .header = {"layer"}, .rows = {}};
        for (Index a = 0; a < report_.layers; ++a) {
          heat.header.push_back(fmt::format("{}", a));
          auto& row = heat.rows.emplace_back(fmt::format("{}", a), std::vector<double>());
          for (Index b = 0; b < report_.layers; ++b)
            row.second.push_back(report_.between[static_cast<std::size_t>(a * report_.layers + b)].*
                                 figure);
        }
        page_.figure(heat.html(2, 1));
      }
    }
    if (report_.against) agreement_table("Compared with another adapter", {*report_.against});
    if (report_.checkpoints.empty()) return;
    agreement_table("Stability between checkpoints", report_.checkpoints);
    LineChart chart{.title = "Share of tokens that keep their group",
                    .x_label = "checkpoint",
                    .y_label = "share"};
    for (Index layer = 0; layer < report_.layers; ++layer) {
      Series& series = chart.series.emplace_back(Series{.name = fmt::format("layer {}", layer)});
      for (std::size_t c = 0; c < report_.checkpoints.size(); ++c)
        series.points.emplace_back(
            static_cast<double>(c + 1),
            report_.checkpoints[c].layers[static_cast<std::size_t>(layer)].kept);
    }
    if (report_.checkpoints.size() > 1) page_.figure(line_chart_svg(chart));
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
    parts(report_.details[i]);
    far_pairs(report_.details[i].far);
  }

  /// The tokens most typical of a group, in few words.
  std::string label(const GroupingDetails& d, std::size_t g, std::size_t most) const {
    std::string text;
    for (const TypicalToken& token : d.typical[g].by_lift)
      if (most-- > 0) text += fmt::format(" {}", visible(report_.vocabulary.at(token.id)));
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
                          grouping.classes[at], grouping.confidence[at], with_breaks(token));
    }
    text += "</p>\n<p class=\"key\">";
    for (Index g = 0; g < report_.groups && report_.groups <= 16; ++g)
      text += fmt::format("<span class=\"g{0}\">{0}</span>{1} ", g,
                          label(report_.details[i], static_cast<std::size_t>(g), 3));
    page_.figure(text + "</p>\n");
  }

  void typical(const GroupingDetails& d) {
    std::string text =
        "<div class=\"scroll\"><table class=\"wide "
        "tokens\">\n<thead><tr><th>group</th><th>share</th>"
        "<th>confidence</th><th>mostly</th><th>surest tokens</th><th>tokens by lift</th></tr>"
        "</thead>\n<tbody>\n";
    for (std::size_t g = 0; g < d.sizes.size(); ++g) {
      const auto list = [&](const std::vector<TypicalToken>& tokens) {
        std::string items;
        for (const TypicalToken& t : tokens)
          items +=
              fmt::format("<code title=\"{} times, confidence {:.3f}, lift {:.2f}\">{}</code> ",
                          t.count, t.confidence, t.lift, visible(report_.vocabulary.at(t.id)));
        return items;
      };
      const TokenCategory largest = d.purity.largest[g];
      text += fmt::format(
          "<tr><td><span class=\"g{0}\">&nbsp;{0}&nbsp;</span></td><td>{1}</td><td>{2:.3f}</td>"
          "<td>{3}</td><td>{4}</td><td>{5}</td></tr>\n",
          g,
          percent_text(static_cast<double>(d.sizes[g]) /
                       static_cast<double>(report_.text.tokens())),
          d.confidence[g],
          d.sizes[g] > 0
              ? fmt::format("{} {}", name_of(largest),
                            percent_text(d.purity.shares[g][static_cast<std::size_t>(largest)]))
              : "empty",
          list(d.typical[g].by_confidence), list(d.typical[g].by_lift));
    }
    page_.figure(text + "</tbody>\n</table></div>\n");
  }

  void categories(const GroupingDetails& d) {
    HeatTable heat{.caption = "Categories of each group, %", .header = {"group"}, .rows = {}};
    for (const std::string_view name : enum_names(TokenCategory{})) heat.header.emplace_back(name);
    for (std::size_t g = 0; g < d.sizes.size(); ++g)
      heat.rows.emplace_back(fmt::format("{}", g), d.purity.shares[g]);
    page_.figure(heat.html(0, 100));
  }

  void parts(const GroupingDetails& d) {
    const bool documents = report_.text.names.size() > 1;
    HeatTable heat{.caption = documents ? "Share of each document's tokens, %"
                                        : "Share of the tokens of each part of the text, %",
                   .header = {documents ? "document" : "piece"},
                   .rows = {}};
    for (std::size_t g = 0; g < d.sizes.size(); ++g) heat.header.push_back(fmt::format("{}", g));
    constexpr std::size_t kShown = 20;
    for (std::size_t p = 0; p < std::min(kShown, d.parts.shares.size()); ++p)
      heat.rows.emplace_back(
          documents ? short_name(report_.text.names[p]) : fmt::format("{}", p + 1),
          d.parts.shares[p]);
    page_.figure(heat.html(1, 100));
  }

  void far_pairs(const FarAffinity& far) {
    if (far.pairs.empty()) return;
    std::string text = fmt::format(
        "<p>Words further apart than the local window of {} with high affinity g<sub>i</sub> "
        "&middot; "
        "g<sub>j</sub> (over all such pairs of tokens its mean is {:.3f}):</p>\n<ul "
        "class=\"far\">\n",
        report_.local_window, far.mean);
    const auto place = [&](Index token) {
      const Excerpt e = report_.excerpt(token, kAround);
      const std::size_t word = std::min(e.token.find_first_not_of(' '), e.token.size());
      return fmt::format("&hellip;{}{}<b>{}</b>{}&hellip;", escape_html(e.before),
                         e.token.substr(0, word), escape_html(e.token.substr(word)),
                         escape_html(e.after));
    };
    for (const FarPair& pair : far.pairs)
      text += fmt::format("<li><i>{:.3f}, {} tokens apart:</i> {} <i>and</i> {}</li>\n",
                          pair.affinity, pair.distance(), place(pair.first), place(pair.second));
    page_.figure(text + "</ul>\n");
  }

  const GroupsReport& report_;
  HtmlReport page_;
};

}  // namespace

std::string groups_table(const GroupsReport& report) {
  std::string text = fmt::format("{:<6} {:>5} {:>9} {:>9} {:>13} {:>11} {:>8} {:>8} {:>10}\n",
                                 "layer", "head", "largest", "smallest", "size entropy",
                                 "confidence", "spread", "purity", "one group");
  for (std::size_t i = 0; i < report.details.size(); ++i) {
    const GroupingDetails& d = report.details[i];
    text += fmt::format(
        "{:<6} {:>5} {:>8.1f}% {:>8.1f}% {:>13.3f} {:>11.3f} {:>7.1f}% {:>7.1f}% {:>9.1f}%\n",
        report.groupings[i].layer,
        report.per_head ? fmt::format("{}", report.groupings[i].head) : "-", 100 * d.largest,
        100 * d.smallest, d.size_entropy, d.mean_confidence, 100 * d.parts.spread,
        100 * d.purity.purity, 100 * d.purity.base);
  }
  const auto tell = [&](const LayerAgreement& a) {
    const Agreement mean = a.mean();
    text += fmt::format(
        "{} and {}: {:.3f} of the tokens keep their group, adjusted Rand {:.3f}, NMI {:.3f}\n",
        a.first, a.second, mean.kept, mean.rand, mean.information);
  };
  if (report.against) tell(*report.against);
  for (const LayerAgreement& step : report.checkpoints) tell(step);
  return text;
}

std::string groups_page(const GroupsReport& report) { return GroupsPage(report).html(); }

}  // namespace focus
