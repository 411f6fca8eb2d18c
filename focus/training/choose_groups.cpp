#include "focus/training/choose_groups.h"

#include <algorithm>
#include <map>
#include <utility>

#include "autograd/base/check.h"
#include "focus/evaluation/attention_spec.h"

namespace focus {
namespace {

constexpr Index kHeldTokens = 4096;
constexpr Index kUsualCalls = 6;  // of a search, for its progress
/// The least that another window, block or number of sinks must take from the KL, a share of it.
constexpr double kWorthwhile = 0.03;

/// A window, or each document of one, as a text.
void append_texts(const Batch& batch, std::vector<EvalText>& texts) {
  std::vector<Index> ends = batch.documents;
  if (ends.empty()) ends = {0, std::ssize(batch.ids)};
  for (std::size_t i = 0; i + 1 < ends.size(); ++i) {
    if (ends[i + 1] - ends[i] < 2) continue;  // nothing to predict
    EvalText& text = texts.emplace_back();
    text.name = "the text that is fitted on";
    text.ids.assign(batch.ids.begin() + ends[i], batch.ids.begin() + ends[i + 1]);
    if (!batch.counts.empty())
      text.counts.assign(batch.counts.begin() + ends[i], batch.counts.begin() + ends[i + 1]);
  }
}

class Search {
 public:
  Search(LoadedModel& model, const Batches& batches, const FitSettings& settings,
         const GroupsGoal& goal, const ShareDone& progress)
      : model_(model), batches_(batches), settings_(settings), goal_(goal), progress_(progress) {
    const Index all = batches.num_windows();
    if (all < 2)
      fail(
          "the text fills {} window of {} tokens, and two are needed, one to choose by: give more "
          "text or a shorter --context",
          all, batches.context());
    const Index held = std::clamp<Index>(all / 4, 1, windows_for(kHeldTokens, batches));
    for (Index i = 0; i < held; ++i) {
      held_.push_back((2 * i + 1) * all / (2 * held));
      append_texts(batches.windows(held_.back(), 1), texts_);
    }
    if (std::ranges::none_of(texts_, [](const EvalText& text) { return text.scored() > 0; }))
      fail("the {} windows that are held back to choose by have no token to score; give more text",
           held);
    const Index read = windows_for(settings.focus.keys().fit_tokens, batches);
    expected_ = read + windows_for(kHeldTokens, batches) + kUsualCalls * held;
    total_ = expected_ + held + (shapes_too() ? 2 * kUsualCalls * held : 0);
  }

  /// Fits K groups and searches m. Returns whether half of them might do better.
  bool try_groups(int groups) {
    const Index first = first_m(groups);
    FitSettings settings = settings_;
    settings.focus.num_groups = groups;
    settings.focus.summary.num_selected_groups = first;
    const FocusModel& focus = attach_groups(model_, settings);
    const Index before = done_;
    fit_focus(
        *model_.decoder, *model_.focus(), batches_, settings.focus.keys().fit_tokens,
        static_cast<std::uint64_t>(settings.seed), [&](Index done, Index) { show(before + done); },
        held_);
    Rng rng(0);
    kept_[groups] = std::make_unique<FocusModel>(settings.focus, focus.shape(), rng);
    kept_[groups]->start_from(*model_.focus(), "fit");
    const Index found = search_m(groups, first);
    show(before + expected_);
    return goal_.fewer_too && groups >= 16 && found <= groups / 16;
  }

  /// Half and twice the window, the block and the sinks of the best so far, one after the other;
  /// what is worthwhile stays, and m is searched once more with it.
  void try_shapes() {
    const TriedGroups best = *best_tried();
    const int groups = best.num_groups;
    settings_.focus.num_groups = groups;
    attach_groups(model_, settings_).start_from(*kept_.at(groups), "fit");
    const double slope = slope_of(best);
    double least = 0;  // log KL at the best's work, less the best's
    const auto try_around = [&](bool wanted, Index& value, Index most) {
      const Index first = value;
      for (const bool up : {true, false}) {
        if (!wanted || (!up && value != first)) continue;
        while (up ? 2 * value <= most : value > 1) {
          const Index before = std::exchange(value, up ? 2 * value : value / 2);
          const TriedGroups& tried = measure(groups, best.num_selected_groups);
          const double gain =
              log_kl(tried.row) - log_kl(best.row) - slope * (tried.work() - best.work());
          if (gain < least - kWorthwhile) {
            least = gain;
          } else {
            value = before;
            break;
          }
        }
      }
    };
    SummarySettings& summary = settings_.focus.summary;
    try_around(goal_.local_window, settings_.focus.local_window, batches_.context() / 4);
    try_around(goal_.sinks, summary.sinks, kMaxSinks / 4);
    try_around(goal_.block, summary.block, 64);
    if (least < 0) search_m(groups, best.num_selected_groups);
  }

  void expect_another() { total_ += expected_; }
  bool shapes_too() const { return goal_.local_window || goal_.block || goal_.sinks; }

  ChosenGroups choose() {
    std::ranges::stable_sort(tried_, {}, [](const TriedGroups& tried) {
      return std::tuple(tried.num_groups, tried.local_window, tried.block, tried.sinks,
                        tried.num_selected_groups);
    });
    const auto best = best_tried();
    ChosenGroups chosen{.settings = settings_,
                        .tried = tried_,
                        .best = static_cast<std::size_t>(best - tried_.begin()),
                        .reached = reaches(*best),
                        .windows = std::ssize(held_)};
    FocusConfig& focus = chosen.settings.focus;
    focus.num_groups = best->num_groups;
    focus.local_window = best->local_window;
    focus.summary.num_selected_groups = best->num_selected_groups;
    focus.summary.block = best->block;
    focus.summary.sinks = best->sinks;
    attach_groups(model_, chosen.settings).start_from(*kept_.at(best->num_groups), "fit");
    return chosen;
  }

 private:
  using Rank = std::tuple<bool, double, double>;

  /// Where the search begins, and with which the heads' needs are measured.
  Index first_m(int groups) const {
    if (goal_.target > 0) return std::max(1, (groups + 6) / 12);
    const auto context = static_cast<double>(batches_.context());
    const SummarySettings& summary = settings_.focus.summary;
    const double local =
        static_cast<double>(settings_.focus.local_window + summary.sinks + groups) +
        static_cast<double>(summary.block) / 2;
    const double guess = groups * (goal_.density - 2 * local / context);
    return std::clamp<Index>(std::lround(guess), 1, std::max(1, groups / 2));
  }

  std::vector<TriedGroups>::const_iterator best_tried() const {
    return std::ranges::min_element(tried_, {}, [&](const TriedGroups& tried) {
      return goal_.target > 0 ? by_target(tried) : by_density(tried);
    });
  }

  Index search_m(int groups, Index first) {
    return least_where(first, groups, [&](Index m) {
      const TriedGroups& tried = measure(groups, m);
      return goal_.target > 0 ? reaches(tried) : tried.row.pairs_attended >= goal_.density;
    });
  }

  const TriedGroups& measure(int groups, Index m) {
    const FocusConfig& focus = settings_.focus;
    const Index window = focus.local_window, block = focus.summary.block;
    const Index sinks = focus.summary.sinks;
    AttentionSpec spec{.kind = AttentionKind::summary};
    spec.summary.num_selected_groups = m;
    spec.summary.local_window = window;
    spec.summary.block = block;
    spec.summary.sinks = sinks;
    const EvalSettings settings{
        .context = batches_.context(), .stride = batches_.context(), .against = Against::dense};
    tried_.push_back({groups, m, window, block, sinks,
                      evaluate(model_, resolve_attention(spec, model_, "fit"), texts_, settings,
                               {.dense = &dense_})});
    show(std::min(done_ + std::ssize(held_), total_));
    return tried_.back();
  }

  /// How far from the density that is asked for, a share of that.
  double away(const Row& row) const { return std::abs(row.pairs_attended / goal_.density - 1); }
  bool reaches(const TriedGroups& tried) const {
    return goal_.target > 0 ? tried.loss() <= goal_.target : away(tried.row) <= 0.1;
  }
  Rank by_target(const TriedGroups& tried) const {
    const bool good = reaches(tried);
    return {!good, good ? tried.row.pairs_attended : tried.loss(), *tried.row.kl};
  }
  /// The nearest of each K and shape, by the KL of these at the goal itself: more pairs are always
  /// better.
  Rank by_density(const TriedGroups& tried) const {
    const bool nearest = std::ranges::none_of(tried_, [&](const TriedGroups& other) {
      return other.differs_in_m(tried) && away(other.row) < away(tried.row);
    });
    const bool good = nearest && reaches(tried);
    return {!good, good ? kl_at_goal(tried) : away(tried.row), *tried.row.kl};
  }
  static double log_kl(const Row& row) { return std::log(std::max(*row.kl, 1e-12)); }
  /// How log KL changes with the work where only m differs: between the least and the most.
  double slope_of(const TriedGroups& groups) const {
    const TriedGroups *least = &groups, *most = &groups;
    for (const TriedGroups& tried : tried_) {
      if (!tried.differs_in_m(groups)) continue;
      if (tried.work() < least->work()) least = &tried;
      if (tried.work() > most->work()) most = &tried;
    }
    const double more = most->work() - least->work();
    return more > 0 ? std::min(0.0, (log_kl(most->row) - log_kl(least->row)) / more) : 0;
  }
  /// The KL of groups at the density that is asked for, its logarithm linear between two m.
  double kl_at_goal(const TriedGroups& groups) const {
    const Row *below = nullptr, *above = nullptr;
    for (const TriedGroups& tried : tried_) {
      if (!tried.differs_in_m(groups)) continue;
      const Row& row = tried.row;
      const Row*& side = row.pairs_attended < goal_.density ? below : above;
      if (side == nullptr || away(row) < away(*side)) side = &row;
    }
    if (below == nullptr || above == nullptr) return *(below != nullptr ? below : above)->kl;
    const double share =
        (goal_.density - below->pairs_attended) / (above->pairs_attended - below->pairs_attended);
    return std::exp(std::lerp(log_kl(*below), log_kl(*above), share));
  }

  void show(Index done) {
    done_ = done;
    if (progress_) progress_(static_cast<double>(done) / static_cast<double>(total_));
  }

  LoadedModel& model_;
  const Batches& batches_;
  FitSettings settings_;
  const GroupsGoal& goal_;
  const ShareDone& progress_;
  std::vector<Index> held_;      // windows that the fit does not read
  std::vector<EvalText> texts_;  // in them
  DenseReference dense_;
  Index done_ = 0, expected_ = 0, total_ = 0;  // windows: `expected_` for each K
  std::vector<TriedGroups> tried_;
  std::map<int, std::unique_ptr<FocusModel>> kept_;
};

}  // namespace

Index least_where(Index first, Index most, const std::function<bool(Index)>& holds) {
  Index low = -1, high = most;
  Index next = std::min(first, most - 1);
  while (high - low > std::max<Index>(1, high / 16)) {
    (holds(next) ? high : low) = next;
    if (low < 0)
      next = high / 2;
    else if (high == most && 2 * low < most)
      next = std::max(low + 1, 2 * low);
    else
      next = (low + high) / 2;
  }
  return high;
}

ChosenGroups choose_groups(LoadedModel& model, const Batches& batches, const FitSettings& settings,
                           const GroupsGoal& goal, const ShareDone& progress) {
  check((goal.target > 0) != (goal.density > 0), "choose_groups: give a target or a density");
  Search search(model, batches, settings, goal, progress);
  const int groups = settings.focus.num_groups;
  if (search.try_groups(groups)) {
    search.expect_another();
    search.try_groups(groups / 2);
  }
  if (search.shapes_too()) search.try_shapes();
  return search.choose();
}

}  // namespace focus
