#include "focus/evaluation/statistics/groups_report.h"

#include <algorithm>

#include "autograd/base/check.h"

namespace focus {
namespace {

constexpr std::int64_t kLeastCount = 5;  // of a token in a group, to be typical
constexpr std::size_t kTypical = 8;      // tokens listed per group
constexpr Index kPassage = 160;          // tokens of the coloured passage

/// Means over pairs of heads; of a layer with itself, of different ones.
GroupsReport::BetweenLayers between_layers(std::span<const GroupAssignments> groupings,
                                           Index layers) {
  const auto n = static_cast<std::size_t>(layers);
  const std::size_t heads = groupings.size() / n;
  const std::vector<std::vector<double>> matrix(n, std::vector<double>(n));
  GroupsReport::BetweenLayers between{matrix, matrix};
  for (std::size_t a = 0; a < n; ++a)
    for (std::size_t b = a; b < n; ++b) {
      double rand = 0, information = 0, count = 0;
      for (const GroupAssignments& one : groupings.subspan(a * heads, heads))
        for (const GroupAssignments& other : groupings.subspan(b * heads, heads)) {
          if (a == b && heads > 1 && &one == &other) continue;
          const Agreement of_pair = agreement(
              contingency(one.group_of_token, one.groups, other.group_of_token, other.groups));
          rand += of_pair.rand;
          information += of_pair.information;
          ++count;
        }
      between.rand[a][b] = between.rand[b][a] = rand / count;
      between.information[a][b] = between.information[b][a] = information / count;
    }
  return between;
}

/// What the text's ids read as, and the category of each token.
TextTokens read_tokens(const Tokenizer& tokenizer, std::span<const std::int32_t> ids) {
  TextTokens tokens;
  std::vector<std::string> texts;
  std::vector<bool> special;
  for (const std::int32_t id : ids) {
    const auto [at, is_new] = tokens.vocabulary.try_emplace(id);
    if (is_new) at->second = token_text(tokenizer, id);
    texts.push_back(at->second);
    special.push_back(tokenizer.is_special(id));
  }
  tokens.categories = categorise(texts, special);
  return tokens;
}

/// In the middle of the text's longest window, where there is context before it.
GroupsReport::Passage choose_passage(const GroupsReport& report, const TextTokens& tokens) {
  const TextWindows& text = report.text;
  const auto size = [&](Index w) { return std::ssize(text.window(w)); };
  Index best = 0;
  for (Index w = 1; w < text.num_windows(); ++w)
    if (size(w) > size(best)) best = w;
  const Index begin = text.windows[best], end = begin + size(best);
  GroupsReport::Passage passage{.first = begin + std::max<Index>(0, size(best) - kPassage) / 2};
  for (Index t = passage.first; t < std::min(end, passage.first + kPassage); ++t) {
    const auto at = static_cast<std::size_t>(t);
    auto& token = passage.tokens.emplace_back();
    token.text = tokens.vocabulary.at(text.ids[at]);
    for (const GroupAssignments& grouping : report.groupings)
      token.groups.push_back(grouping.group_of_token[at]);
  }
  return passage;
}

const FocusModel& require_groups(const LoadedModel& model) {
  if (model.focus() == nullptr)
    fail(
        "{}: has no groups; give an adapter of focus fit or of a retrofit with --adapter, or a "
        "model that was trained with Focus",
        model.where);
  return *model.focus();
}

}  // namespace

TextWindows windows_for(const LoadedModel& model, std::span<const EvalText> texts, Index context) {
  require_groups(model);
  TextWindows windows = cut_windows(texts, context);
  if (windows.tokens() < context)
    fail("{}: {} tokens, fewer than the {} of a window; give a longer text, or a smaller --context",
         texts.empty() ? "the texts" : texts.front().name, windows.tokens(), context);
  return windows;
}

GroupsReport describe_groups(LoadedModel& model, const TextWindows& text, Index context,
                             const ShareDone& progress) {
  const FocusModel& focus = require_groups(model);
  const Tokenizer& tokenizer = model.require_tokenizer();
  GroupsReport report{.model = model.where,
                      .grouping = std::string(focus.grouping().kind()),
                      .per_head = focus.grouping_kind().is_per_head,
                      .context = context,
                      .layers = focus.shape().num_layers,
                      .heads = focus.grouping().heads(),
                      .num_groups = focus.config().num_groups,
                      .local_window = focus.config().local_window,
                      .text = text};
  ActiveAttention active(model, own_attention(model));
  report.attention = active.title();
  active.start_counting();
  report.groupings = collect_groupings(*model.decoder, *model.focus(), text, progress);
  if (const PairCounts pairs = active.stop_counting().pairs; pairs.all > 0)
    report.pairs_attended = static_cast<double>(pairs.attended) / static_cast<double>(pairs.all);
  const TextTokens tokens = read_tokens(tokenizer, text.ids);
  for (const GroupAssignments& grouping : report.groupings) {
    report.details.push_back(describe_grouping(grouping, text.ids, tokens, kLeastCount, kTypical));
    if (report.per_head) report.details.back().head = grouping.head;
  }
  report.between_layers = between_layers(report.groupings, report.layers);
  report.passage = choose_passage(report, tokens);
  return report;
}

}  // namespace focus
