#include "focus/evaluation/statistics/groups_report.h"

#include <algorithm>
#include <filesystem>

#include "autograd/base/check.h"
#include "data/gguf/gguf.h"

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
  return groupings.subspan(layer * heads, heads);
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

GroupsReport::BetweenLayers between_layers(std::span<const GroupAssignments> groupings,
                                           Index layers) {
  const Index heads = heads_of(groupings);
  const auto n = static_cast<std::size_t>(layers);
  const std::vector<std::vector<double>> matrix(n, std::vector<double>(n));
  GroupsReport::BetweenLayers between{matrix, matrix};
  for (std::size_t a = 0; a < n; ++a)
    for (std::size_t b = a; b < n; ++b) {
      const Heads which = a != b ? Heads::all : heads > 1 ? Heads::other : Heads::same;
      const Agreement of_pair =
          mean_agreement(layer_of(groupings, static_cast<Index>(a), heads),
                         layer_of(groupings, static_cast<Index>(b), heads), which);
      between.rand[a][b] = between.rand[b][a] = of_pair.rand;
      between.information[a][b] = between.information[b][a] = of_pair.information;
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

Agreement LayerAgreement::mean() const { return mean_of(layers); }

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
                      .tokenizer = tokenizer.fingerprint(),
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

bool is_whole_model(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) return std::filesystem::exists(path / "config.json");
  return is_gguf(path) || StoreReader(path).has("/model");
}

void check_other_groups(const LoadedModel& model, const std::string& path) {
  if (!std::filesystem::exists(path)) fail("{}: no such file or folder", path);
  const bool whole = is_whole_model(path);
  const std::optional<SavedFocus> saved =
      whole ? open_model(path).focus() : open_focus(std::filesystem::path(path));
  if (!saved) fail("{}: has no groups", path);
  const auto layers = static_cast<Index>(model.decoder->layers().size());
  if (saved->shape.num_layers != layers)
    fail("{}: {} layers, but {} has {}; only models with the same number of layers can be compared",
         path, saved->shape.num_layers, model.where, layers);
  if (!whole) read_focus(*saved, model.fingerprint(), model.where);
}

std::vector<GroupAssignments> other_groupings(LoadedModel& other, const GroupsReport& report,
                                              const ShareDone& progress) {
  if (other.require_tokenizer().fingerprint() != report.tokenizer)
    fail(
        "{}: its tokenizer differs from that of {}; only groups of the same tokens can be compared",
        other.where, report.model);
  const ActiveAttention active(other, own_attention(other));
  return collect_groupings(*other.decoder, *other.focus(), report.text, progress);
}

std::vector<std::string> expand_checkpoints(const std::vector<std::string>& paths) {
  std::vector<std::string> all;
  for (const std::string& path : paths) {
    const auto folder = std::filesystem::path(path) / "checkpoints";
    if (!std::filesystem::is_directory(folder)) {
      all.push_back(path);
      continue;
    }
    const auto first = static_cast<std::ptrdiff_t>(all.size());
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.path().extension() == ".h5") all.push_back(entry.path().string());
    std::sort(all.begin() + first, all.end());
  }
  if (!paths.empty() && all.size() < 2)
    fail("{}: expected at least two checkpoints, such as those of a run with checkpoint_keep=100",
         paths.front());
  return all;
}

}  // namespace focus
