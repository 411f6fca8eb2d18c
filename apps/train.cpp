
#include "apps/command.h"
#include "apps/terminal/progress.h"
#include "data/settings/recipe.h"
#include "apps/trainer.h"
#include "autograd/check.h"

namespace focus {
namespace {

using Json = nlohmann::ordered_json;

void print_dry_run(const DryRun& d) {
  const auto bytes = [](std::size_t n) { return format_bytes(static_cast<double>(n)); };
  std::int64_t first = 0;
  for (const DryPhase& p : d.phases) {
    if (d.phases.size() > 1)
      fmt::print("phase {}, steps {} to {}\n", first == 0 ? 1 : 2, first + 1, first + p.steps);
    first += p.steps;
    fmt::print("trainable parameters  {}\nfrozen parameters     {}\n", p.trainable, p.frozen);
    fmt::print(
        "memory: weights       {}\nmemory: gradients     {}\nmemory: optimiser     {}\nmemory: "
        "activations   {}\n",
        bytes(d.weight_bytes), bytes(p.gradient_bytes), bytes(p.optimiser_bytes),
        bytes(p.activation_bytes));
    fmt::print("a step                {:.3f} s, {} tok/s\n", p.seconds_per_step,
               format_count(d.tokens_per_step() / p.seconds_per_step));
  }
  fmt::print("tokens of the run     {} ({:.2f} epochs of {})\nthe run               {}\n", d.tokens,
             static_cast<double>(d.tokens) / static_cast<double>(d.train_tokens), d.train_tokens,
             format_duration(d.seconds()));
}

/// A phase's figures stand at the top for the last one, which trains the most; with more than one
/// phase each stands in `phases`.
Json dry_run_json(const DryRun& d) {
  const auto of_phase = [&](const DryPhase& p) {
    return Json{{"trainable", p.trainable},
                {"frozen", p.frozen},
                {"weight_bytes", d.weight_bytes},
                {"gradient_bytes", p.gradient_bytes},
                {"optimiser_bytes", p.optimiser_bytes},
                {"activation_bytes", p.activation_bytes},
                {"seconds_per_step", p.seconds_per_step},
                {"tokens_per_second", d.tokens_per_step() / p.seconds_per_step}};
  };
  Json json = of_phase(d.phases.back());
  json["tokens"] = d.tokens;
  json["train_tokens"] = d.train_tokens;
  json["seconds"] = d.seconds();
  if (d.phases.size() > 1)
    for (const DryPhase& p : d.phases) {
      Json& phase = json["phases"].emplace_back(Json{{"steps", p.steps}});
      phase.update(of_phase(p));
    }
  return json;
}

}  // namespace

int run_train(Arguments arguments) {
  std::string recipe, json;
  bool dry = false;
  TrainOptions options;
  CLI::App app(
      "Trains by a recipe: centroids on a frozen base (retrofit), these and then all of it "
      "(two_phase), all of a base (full), a new model (scratch), or low-rank adapters (lora).",
      "focus train");
  add_recipe_arguments(app, recipe);
  app.add_flag("--dry-run", dry,
               "parameters, memory, tokens and time from a timed step; trains nothing");
  app.add_flag("--resume", options.resume, "go on from the newest checkpoint in the run's folder");
  app.add_flag("--overwrite", options.overwrite, "start anew where the run's folder holds a run");
  app.add_option("--stop-at", options.stop_at, "write a checkpoint and stop after this step");
  app.add_option("--json", json, "write the figures to this file too");
  parse_arguments(app, arguments);

  RunConfig config;
  read_recipe_arguments(app, recipe, config);
  set_threads(config.threads);
  install_stop_signals();
  Trainer trainer(config);

  if (dry) {
    fmt::print(stderr, "{}", dump_recipe(config));
    const DryRun d = trainer.dry_run();
    print_dry_run(d);
    write_json(json, dry_run_json(d));
    return 0;
  }
  const TrainResult result = trainer.run(options);
  if (result.finished)
    fmt::print("{}: {} steps{}\n", result.artifact.string(), result.step,
               result.valid_loss && result.valid_loss_start
                   ? fmt::format(", validation perplexity {:.4f} -> {:.4f}",
                                 std::exp(*result.valid_loss_start), std::exp(*result.valid_loss))
                   : "");
  Json figures = {{"finished", result.finished},
                  {"step", result.step},
                  {"trainable", trainer.count_trainable()},
                  {"artifact", result.artifact.string()}};
  if (result.valid_loss_start) figures["valid_loss_start"] = *result.valid_loss_start;
  if (result.valid_loss) figures["valid_loss"] = *result.valid_loss;
  write_json(json, figures);
  return 0;
}

}  // namespace focus
