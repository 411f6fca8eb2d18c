#include <algorithm>
#include <charconv>
#include <cmath>

#include "apps/command.h"
#include "apps/terminal/progress.h"
#include "autograd/base/check.h"
#include "autograd/base/profile.h"
#include "focus/evaluation/report/html_report.h"
#include "focus/method/summary/head_budgets.h"
#include "focus/training/choose_groups.h"

namespace focus::app {
namespace {

/// Counts over some thousands of tokens from all parts of the text.
void count_groups(LoadedModel& model, const Batches& batches) {
  constexpr Index kTokens = 4096;
  const NoGrad guard;
  const Index windows = std::min<Index>(8, windows_for(kTokens, batches));
  for (Index i = 0; i < windows; ++i)
    run_window(*model.decoder, batches, i * batches.num_windows() / windows);
}

/// A line a layer: how even the groups are, over its key heads.
void print_groups(const AttentionCounts& counts) {
  fmt::print("{:<6} {:>10} {:>10} {:>10}   {}\n", "layer", "smallest", "median", "largest",
             "group sizes, share of the head's keys");
  for (std::size_t i = 0; i < counts.layers.size(); ++i) {
    std::vector<std::int64_t> sizes = counts.layers[i].sizes;
    std::ranges::sort(sizes);
    const auto share = [&](std::int64_t size) {
      return 100 * static_cast<double>(size) / static_cast<double>(counts.layers[i].tokens);
    };
    fmt::print("{:<6} {:>9.2f}% {:>9.2f}% {:>9.2f}%\n", i, share(sizes.front()),
               share(sizes[sizes.size() / 2]), share(sizes.back()));
  }
}

/// Reads "0.5%", or 0.005.
void read_share(const std::string& option, const std::string& word, double& share) {
  std::string digits = word;
  std::erase(digits, ' ');
  const bool percent = digits.ends_with('%');
  if (percent) digits.pop_back();
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, share);
  if (percent) share /= 100;
  if (error == std::errc() && stop == end && share > 0 && share < 1) return;
  fail("{}: expected a share above 0 and below 100%, such as 0.5% or 0.005, got {}", option, word);
}

/// Declares the goals, of which one may be given.
void add_goals(CLI::App& app, GroupsGoal& goal) {
  const auto add = [&](const std::string& name, double& share, const std::string& help) {
    return app
        .add_option_function<std::string>(
            name, [name, &share](const std::string& word) { read_share(name, word, share); }, help)
        ->type_name("SHARE")
        ->excludes(app.get_option("--num-selected-groups"));
  };
  CLI::Option* const target =
      add("--target", goal.target,
          "chooses K, m, w, B and s: the least density that loses at most this share of "
          "perplexity, such as 0.5%, on windows of the text that are held back from the fit");
  add("--density", goal.density,
      "chooses K, m, w, B and s: the least KL to dense attention at about this share of the causal "
      "pairs, such as 12%, on such windows")
      ->excludes(target);
}

const std::vector<std::string> kOfContext = {"num_groups", "num_selected_groups", "local_window",
                                             "block", "sinks"};

/// Sets what suits the context where nothing that it is about was given, or where groups are
/// chosen; what was given stays.
void suit_context(const CLI::App& app, Index context, GroupsGoal& goal, FitSettings& settings) {
  std::vector<std::pair<ConfigField, std::string>> given;
  for (const ConfigField& field : only(config_fields(settings), kOfContext))
    if (const std::string name = option_name(field); app.count(name) > 0)
      given.emplace_back(field, app[name]->as<std::string>());
  if (!given.empty() && goal.target == 0 && goal.density == 0) return;
  settings.suit(context);
  for (const auto& [field, value] : given) read_option(field, value);
  goal.fewer_too = app.count("--num-groups") == 0;
  goal.local_window = app.count("--local-window") == 0;
  goal.block = app.count("--block") == 0;
  goal.sinks = app.count("--sinks") == 0;
}

std::string settings_text(const FitSettings& settings) {
  const SummarySettings& summary = settings.focus.summary;
  return fmt::format("K={}, m={}, w={}, B={}, {} sink{}", settings.focus.num_groups,
                     summary.num_selected_groups, settings.focus.local_window, summary.block,
                     summary.sinks, summary.sinks == 1 ? "" : "s");
}

/// What was tried, and what of it was chosen.
void print_choice(const ChosenGroups& chosen, const GroupsGoal& goal, Index context) {
  const TriedGroups& best = chosen.tried[chosen.best];
  Table table{.header = {"", "K", "m", "w", "B", "s", "density", "selection", "work", "KL", "loss",
                         "error"}};
  for (const TriedGroups& tried : chosen.tried)
    table.rows.push_back({&tried == &best ? "*" : "", fmt::format("{}", tried.num_groups),
                          fmt::format("{}", tried.num_selected_groups),
                          fmt::format("{}", tried.local_window), fmt::format("{}", tried.block),
                          fmt::format("{}", tried.sinks), percent_text(tried.row.pairs_attended),
                          percent_text(tried.row.pairs_choosing), percent_text(tried.work()),
                          number_text(tried.row.kl, 4),
                          fmt::format("{:+.2f} %", 100 * tried.loss()),
                          fmt::format("{:.2f} %", 100 * tried.loss_error())});
  const double dense = best.row.nats_per_token - *best.row.nats_against_dense;
  fmt::print(
      "chosen on {} window{} of {} tokens held back from the fit, {} tokens scored, perplexity of "
      "dense attention {:.2f}:\n{}density: share of causal pairs computed; selection: its "
      "overhead, in pair equivalents; work: both, a proxy of attention's time, which focus speed "
      "measures; KL: KL(dense || row), nats; loss: of perplexity, with its standard error over "
      "these tokens\n",
      chosen.windows, chosen.windows == 1 ? "" : "s", context, best.row.tokens_scored,
      std::exp(dense), plain_text(table, 1));
  if (!chosen.reached)
    fmt::print("{} is not reached; the nearest is taken\n",
               goal.target > 0 ? fmt::format("--target {}", percent_text(goal.target))
                               : fmt::format("--density {}", percent_text(goal.density)));
}

/// Fits, or chooses what it fits, and counts the groups' keys.
void fit_groups(LoadedModel& model, const Batches& batches, const GroupsGoal& goal,
                FitSettings& settings) {
  Progress progress({.label = "fit", .total_steps = 1000});
  const auto show = [&](double done) { progress.update(std::lround(1000 * done), NAN, 0); };
  if (goal.target > 0 || goal.density > 0) {
    const ChosenGroups chosen = choose_groups(model, batches, settings, goal, show);
    settings = chosen.settings;
    model.focus()->start_counting();
    count_groups(model, batches);
    progress.finish();
    print_choice(chosen, goal, batches.context());
  } else {
    FocusModel& focus = attach_groups(model, settings);
    focus.start_counting();
    fit_focus(*model.decoder, focus, batches, settings.focus.keys().fit_tokens,
              static_cast<std::uint64_t>(settings.seed), [&](Index done, Index all) {
                show(static_cast<double>(done) / static_cast<double>(all));
              });
    // Where heads' needs were measured, groups have been in use.
    if (focus.counts().layers.front().tokens == 0) count_groups(model, batches);
  }
  model.focus()->stop_counting();
}

}  // namespace

int run_fit(Arguments arguments) {
  ModelOptions options;
  FitSettings settings;
  std::vector<std::string> paths;
  std::string out, separator;
  bool overwrite = false;
  CLI::App app(
      "Groups the keys of every head of a frozen model by k-means, without training, and writes an "
      "adapter for focus eval, generate and the others (--adapter): attention in which each "
      "unselected group is one summary token.",
      "focus fit");
  options.add_to(app);
  app.add_option("--text", paths,
                 "text files (.txt, .xz) or folders to fit on; keep test texts out")
      ->required();
  app.add_option("--separator", separator, "separator between the documents of a file");
  app.add_option("--out", out, "adapter file to write (.h5)")->required();
  add_settings(app, config_fields(settings));
  GroupsGoal goal;
  add_goals(app, goal);
  app.add_flag("--overwrite", overwrite, "replace an existing adapter");
  parse_arguments(app, arguments);
  refuse_existing(out, overwrite);

  LoadedModel model = options.load();
  if (const Index positions = model.decoder->config().max_position_embeddings;
      settings.context > positions)
    fail("--context {}: {} has {} positions", settings.context, options.base, positions);
  const double start = now();
  const Batches batches = fit_windows(model, Texts::of_files(paths), separator, settings.context);
  suit_context(app, batches.context(), goal, settings);
  fit_groups(model, batches, goal, settings);
  const double seconds = now() - start;
  FocusModel& focus = *model.focus();
  write_adapter(out, focus, model);
  fmt::print("{}, for windows of {} tokens\n", settings_text(settings), batches.context());
  fmt::print(
      "{}: {} groups for each of {} key heads in {} layers, fitted on {} tokens in {:.1f} s\n", out,
      settings.focus.num_groups, focus.shape().kv_heads, focus.shape().num_layers,
      focus.grouping().updates(0), seconds);
  if (const std::vector<Tensor> needs = focus.head_needs(); !needs.empty())
    fmt::print(
        "a query head selects {}\n",
        budgets_text(needs, settings.focus.summary.num_selected_groups, settings.focus.num_groups));
  print_groups(focus.counts());
  return 0;
}

}  // namespace focus::app
