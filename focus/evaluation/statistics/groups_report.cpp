#include "focus/evaluation/statistics/groups_report.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "autograd/base/check.h"
#include "data/files/utf8.h"

namespace focus {
namespace {

constexpr std::int64_t kLeastCount = 5;  // of a token in a group, to be typical
constexpr std::size_t kTypical = 8;      // tokens listed per group
constexpr Index kPassage = 160;          // tokens of the coloured passage

Index heads_of(std::span<const GroupAssignments> groupings) {
  Index heads = 1;
  for (const GroupAssignments& g : groupings) heads = std::max(heads, g.head + 1);
  return heads;
}

std::span<const GroupAssignments> layer_of(std::span<const GroupAssignments> groupings, Index layer,
                                           Index heads) {
  return groupings.subspan(static_cast<std::size_t>(layer * heads),
                           static_cast<std::size_t>(heads));
}

enum class Heads { all, same, other };  // pairs of heads that are compared

Agreement mean_of(std::span<const Agreement> all) {
  Agreement mean;
  for (const Agreement& one : all) {
    mean.rand += one.rand;
    mean.information += one.information;
    mean.kept += one.kept;
  }
  const double n = std::max(1.0, static_cast<double>(all.size()));
  return {.rand = mean.rand / n, .information = mean.information / n, .kept = mean.kept / n};
}

Agreement mean_agreement(std::span<const GroupAssignments> a, std::span<const GroupAssignments> b,
                         Heads heads) {
  std::vector<Agreement> all;
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < b.size(); ++j)
      if (heads == Heads::all || (heads == Heads::same) == (i == j))
        all.push_back(agreement(
            contingency(a[i].group_of_token, a[i].groups, b[j].group_of_token, b[j].groups)));
  return mean_of(all);
}

std::vector<Agreement> between_layers(std::span<const GroupAssignments> groupings, Index layers) {
  const Index heads = heads_of(groupings);
  std::vector<Agreement> between(static_cast<std::size_t>(layers * layers));
  for (Index a = 0; a < layers; ++a)
    for (Index b = a; b < layers; ++b) {
      const Heads which = a != b ? Heads::all : heads > 1 ? Heads::other : Heads::same;
      const Agreement of_pair =
          mean_agreement(layer_of(groupings, a, heads), layer_of(groupings, b, heads), which);
      between[static_cast<std::size_t>(a * layers + b)] = of_pair;
      between[static_cast<std::size_t>(b * layers + a)] = of_pair;
    }
  return between;
}

GroupingDetails details_of(const GroupAssignments& grouping, const GroupsReport& report) {
  GroupingDetails details{
      .sizes = group_sizes(grouping),
      .confidence = group_confidence(grouping),
      .typical = typical_tokens(report.text.ids, grouping, kLeastCount, kTypical),
      .purity = purity(grouping, report.categories)};
  const auto tokens = static_cast<double>(grouping.tokens());
  const auto [least, most] = std::ranges::minmax(details.sizes);
  details.smallest = static_cast<double>(least) / tokens;
  details.largest = static_cast<double>(most) / tokens;
  if (grouping.groups > 1)
    details.size_entropy =
        entropy_of_counts(details.sizes) / std::log(static_cast<double>(grouping.groups));
  for (const float c : grouping.confidence)
    details.mean_confidence += static_cast<double>(c) / tokens;
  return details;
}

/// Sets the vocabulary and the category of each token.
void read_tokens(const Tokenizer& tokenizer, GroupsReport& report) {
  std::vector<std::string> texts;
  std::vector<bool> special;
  for (const std::int32_t id : report.text.ids) {
    const auto [at, is_new] = report.vocabulary.try_emplace(id);
    if (is_new) at->second = token_text(tokenizer, id);
    texts.push_back(at->second);
    special.push_back(tokenizer.is_special(id));
  }
  report.categories = categorise(texts, special);
}

/// In the middle of the text's longest window, where there is context before it.
void choose_passage(GroupsReport& report, Index tokens) {
  const TextWindows& text = report.text;
  Index best = 0, longest = 0;
  for (Index w = 0; w < text.num_windows(); ++w)
    if (const auto size = static_cast<Index>(text.window(w).size()); size > longest) {
      longest = size;
      best = w;
    }
  const Index begin = text.windows[static_cast<std::size_t>(best)];
  report.passage_first = begin + std::max<Index>(0, longest - tokens) / 2;
  report.passage_end = std::min(begin + longest, report.passage_first + tokens);
}

const FocusModel& require_groups(const LoadedModel& model) {
  if (model.focus() == nullptr)
    fail(
        "{}: has no groups; give an adapter of focus fit or of a retrofit with --adapter, or a "
        "model that was trained with Focus",
        model.where);
  return *model.focus();
}

/// The ids of a text, what is put before each window among them.
std::vector<std::int32_t> with_starts(const EvalText& text, Index context) {
  if (!text.window_start) return text.ids;
  check(context >= 2, "groups: windows of {} tokens have no room for a special token before them",
        context);
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < text.ids.size(); ++i) {
    if (i % static_cast<std::size_t>(context - 1) == 0) ids.push_back(*text.window_start);
    ids.push_back(text.ids[i]);
  }
  return ids;
}

}  // namespace

Agreement LayerAgreement::mean() const { return mean_of(layers); }

TextWindows windows_for(const LoadedModel& model, std::span<const EvalText> texts, Index context) {
  require_groups(model);
  std::vector<std::vector<std::int32_t>> ids;  // documents look into them
  for (const EvalText& text : texts) ids.push_back(with_starts(text, context));
  std::vector<DocumentTokens> documents;
  for (std::size_t i = 0; i < texts.size(); ++i)
    documents.push_back({replace_invalid_utf8(texts[i].name), ids[i]});
  TextWindows windows = cut_windows(documents, context);
  if (windows.tokens() < context)
    fail("{}: {} tokens, fewer than the {} of a window; give a longer text, or a smaller --context",
         texts.empty() ? "the texts" : texts.front().name, windows.tokens(), context);
  return windows;
}

GroupsReport describe_groups(LoadedModel& model, const TextWindows& text, Index context,
                             const CollectProgress& progress) {
  const FocusModel& focus = require_groups(model);
  const Tokenizer& tokenizer = model.require_tokenizer();
  GroupsReport report{.model = model.where,
                      .grouping = std::string(focus.grouping().kind()),
                      .per_head = focus.grouping_kind().is_per_head,
                      .tokenizer = tokenizer.fingerprint(),
                      .context = context,
                      .layers = focus.shape().num_layers,
                      .heads = focus.grouping().heads(),
                      .groups = focus.config().num_groups,
                      .local_window = focus.config().local_window,
                      .text = text};
  read_tokens(tokenizer, report);
  choose_passage(report, kPassage);
  const ActiveAttention active(model, own_attention(model));
  report.attention = active.title();
  report.groupings = collect_groupings(*model.decoder, *model.focus(), report.text, progress);
  for (const GroupAssignments& grouping : report.groupings)
    report.details.push_back(details_of(grouping, report));
  report.between = between_layers(report.groupings, report.layers);
  return report;
}

LayerAgreement layer_agreement(std::span<const GroupAssignments> a,
                               std::span<const GroupAssignments> b) {
  const Index heads_a = heads_of(a), heads_b = heads_of(b);
  const Index layers = static_cast<Index>(a.size()) / heads_a;
  check(layers == static_cast<Index>(b.size()) / heads_b,
        "groups: {} layers in one adapter, {} in the other", layers,
        static_cast<Index>(b.size()) / heads_b);
  LayerAgreement of_layers;
  for (Index layer = 0; layer < layers; ++layer)
    of_layers.layers.push_back(mean_agreement(layer_of(a, layer, heads_a),
                                              layer_of(b, layer, heads_b),
                                              heads_a == heads_b ? Heads::same : Heads::all));
  return of_layers;
}

}  // namespace focus
