
#include "apps/command.h"
#include "apps/progress.h"
#include "apps/recipe.h"
#include "apps/trainer.h"
#include "autograd/check.h"

namespace focus {

int run_train(Arguments arguments) {
  std::string recipe, json;
  bool dry = false;
  TrainOptions options;
  CLI::App app(
      "Trains by a recipe: centroids on a frozen base (retrofit), all of a base (full), or a new "
      "model (scratch).",
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
    const double seconds = d.seconds_per_step * static_cast<double>(config.steps);
    const double rate = static_cast<double>(d.tokens) / seconds;
    fmt::print("trainable parameters  {}\nfrozen parameters     {}\n", d.trainable, d.frozen);
    fmt::print(
        "memory: weights       {}\nmemory: gradients     {}\nmemory: optimiser     {}\nmemory: "
        "activations   {}\n",
        format_bytes(static_cast<double>(d.weight_bytes)),
        format_bytes(static_cast<double>(d.gradient_bytes)),
        format_bytes(static_cast<double>(d.optimiser_bytes)),
        format_bytes(static_cast<double>(d.activation_bytes)));
    fmt::print("tokens of the run     {} ({:.2f} epochs of {})\n", d.tokens,
               static_cast<double>(d.tokens) / static_cast<double>(d.train_tokens), d.train_tokens);
    fmt::print("a step                {:.3f} s, {} tok/s\nthe run               {}\n",
               d.seconds_per_step, format_count(rate), format_duration(seconds));
    write_json(json, {{"trainable", d.trainable},
                      {"frozen", d.frozen},
                      {"weight_bytes", d.weight_bytes},
                      {"gradient_bytes", d.gradient_bytes},
                      {"optimiser_bytes", d.optimiser_bytes},
                      {"activation_bytes", d.activation_bytes},
                      {"tokens", d.tokens},
                      {"train_tokens", d.train_tokens},
                      {"seconds_per_step", d.seconds_per_step},
                      {"tokens_per_second", rate}});
    return 0;
  }
  const TrainResult result = trainer.run(options);
  if (result.finished)
    fmt::print("{}: {} steps, validation perplexity {:.4f} -> {:.4f}\n", result.artifact.string(),
               result.step, std::exp(result.valid_loss_start), std::exp(result.valid_loss));
  write_json(json, {{"finished", result.finished},
                    {"step", result.step},
                    {"trainable", trainer.count_trainable()},
                    {"valid_loss_start", result.valid_loss_start},
                    {"valid_loss", result.valid_loss},
                    {"artifact", result.artifact.string()}});
  return 0;
}

}  // namespace focus
