#include "focus/training/dry_run.h"

#include <fmt/format.h>

#include "data/text/format.h"

namespace focus {
namespace {

std::string bytes_text(std::size_t bytes) { return format_bytes(static_cast<double>(bytes)); }

DryRunFigures::Phase figures_of_phase(const DryRun& run, const DryPhase& phase) {
  const auto bytes = [](std::size_t n) { return static_cast<std::int64_t>(n); };
  return {
      .trainable = phase.trainable,
      .frozen = phase.frozen,
      .weight_bytes = bytes(run.weight_bytes),
      .gradient_bytes = bytes(phase.gradient_bytes),
      .optimiser_bytes = bytes(phase.optimiser_bytes),
      .activation_bytes = bytes(phase.activation_bytes),
      .program_bytes = bytes(phase.program_bytes),
      .memory_bytes = bytes(phase.memory_bytes),
      .mapped_bytes = bytes(run.mapped_bytes),
      .seconds_per_step = phase.seconds_per_step,
      .tokens_per_second = phase.steps > 0 ? run.tokens_per_step() / phase.seconds_per_step : 0};
}

}  // namespace

DryRunFigures DryRunFigures::of(const DryRun& run) {
  DryRunFigures figures{.last = figures_of_phase(run, run.phases.back()),
                        .tokens = run.tokens,
                        .train_tokens = run.train_tokens,
                        .seconds = run.seconds()};
  if (run.phases.size() == 1) return figures;
  figures.phases.emplace();
  for (const DryPhase& phase : run.phases) {
    figures.phases->push_back(figures_of_phase(run, phase));
    figures.phases->back().steps = phase.steps;
  }
  return figures;
}

std::string dry_run_text(const DryRun& run) {
  std::string text;
  std::int64_t first = 0;
  for (const DryPhase& p : run.phases) {
    if (run.phases.size() > 1)
      text +=
          fmt::format("phase {}, steps {} to {}\n", first == 0 ? 1 : 2, first + 1, first + p.steps);
    first += p.steps;
    text +=
        fmt::format("trainable parameters  {}\nfrozen parameters     {}\n", p.trainable, p.frozen);
    text += fmt::format(
        "memory: weights       {}\nmemory: gradients     {}\nmemory: optimiser     {}\nmemory: "
        "activations   {}\nmemory: program       {}\nmemory: total         {}{}\n",
        bytes_text(run.weight_bytes - run.mapped_bytes), bytes_text(p.gradient_bytes),
        bytes_text(p.optimiser_bytes), bytes_text(p.activation_bytes), bytes_text(p.program_bytes),
        bytes_text(p.memory_bytes),
        run.mapped_bytes == 0 ? ""
                              : fmt::format(", and weights of {} mapped from their file",
                                            bytes_text(run.mapped_bytes)));
    if (p.steps > 0)
      text += fmt::format("time per step         {:.3f} s, {} tok/s\n", p.seconds_per_step,
                          format_count(run.tokens_per_step() / p.seconds_per_step));
  }
  return text +
         fmt::format("tokens of the run     {} ({:.2f} epochs of {})\ntime of the run       {}\n",
                     run.tokens,
                     static_cast<double>(run.tokens) / static_cast<double>(run.train_tokens),
                     run.train_tokens, format_duration(run.seconds()));
}

}  // namespace focus
