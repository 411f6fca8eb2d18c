#include "focus/training/fit.h"

#include <algorithm>

#include "apps/command.h"
#include "apps/terminal/progress.h"
#include "autograd/base/check.h"
#include "autograd/base/profile.h"
#include "focus/method/summary/head_budgets.h"

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
  app.add_flag("--overwrite", overwrite, "replace an existing adapter");
  parse_arguments(app, arguments);
  refuse_existing(out, overwrite);

  LoadedModel model = options.load();
  if (const Index positions = model.decoder->config().max_position_embeddings;
      settings.context > positions)
    fail("--context {}: {} has {} positions", settings.context, options.base, positions);
  const double start = now();
  const Batches batches = fit_windows(model, Texts::of_files(paths), separator, settings.context);
  FocusModel& focus = attach_groups(model, settings);
  Progress progress({.label = "fit", .total_steps = 1000});
  focus.start_counting();
  fit_focus(*model.decoder, focus, batches, settings.focus.keys().fit_tokens,
            static_cast<std::uint64_t>(settings.seed),
            [&](Index done, Index all) { progress.update(1000 * done / all, NAN, 0); });
  const double seconds = now() - start;
  // Where heads' needs were measured, groups have been in use.
  if (focus.counts().layers.front().tokens == 0) count_groups(model, batches);
  focus.stop_counting();
  write_adapter(out, focus, model);
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
