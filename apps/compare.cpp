#include <spdlog/spdlog.h>

#include "apps/command.h"
#include "apps/compare/compare_run.h"
#include "apps/mpi.h"
#include "apps/terminal/progress.h"
#include "autograd/base/check.h"
#include "data/files/durable_file.h"
#include "data/settings/config.h"
#include "data/settings/struct_json.h"
#include "focus/training/compare/compare_report.h"
#include "focus/training/training.h"

namespace focus::app {
namespace {

/// What the runs would take; trains nothing and writes nothing but token caches.
int list_runs(const ComparePlan& plan) {
  double total = 0;
  int failed = 0;
  fmt::print("{:>4}  {:>12}  {:>8}  {:>10}  {}\n", "seed", "trainable", "tokens", "time", "run");
  std::string last;
  double seconds = 0;
  Index trainable = 0;
  for (const PlannedRun& run : plan.runs) {
    try {
      if (run.name != last) {  // seeds take equally long
        set_threads(run.config.threads);
        Session session = open_session(run.config);
        const DryRun dry = dry_run(session);
        seconds = dry.seconds();
        trainable = dry.phases.back().trainable;
        last = run.name;
      }
      total += seconds;
      fmt::print("{:>4}  {:>12}  {:>8}  {:>10}  {}\n", run.config.seed, trainable,
                 format_count(tokens_of(run.config)), format_duration(seconds), run.name);
    } catch (const std::exception& error) {
      ++failed;
      fmt::print("{:>4}  {:>12}  {:>8}  {:>10}  {}: {}\n", run.config.seed, "-", "-", "-", run.name,
                 error.what());
    }
  }
  fmt::print("{} runs, {} of training, including runs already done\n", plan.runs.size(),
             format_duration(total));
  return failed == 0 ? 0 : 1;
}

/// Everything that a comparison leaves in its folder beside its runs, and the table for a terminal.
struct Tables {
  std::vector<std::pair<const char*, std::string>> files = {};
  std::string terminal = {};
};

Tables tables_of(const ComparePlan& plan, const ComparedRows& rows,
                 const std::vector<RunOutcome>& outcomes) {
  const CompareConfig& config = plan.config;
  const ComparedConfig compared{.title = config.title,
                                .runs = plan.runs.size(),
                                .seeds = config.seeds,
                                .far = config.eval.far};
  const auto texts = structs_to_json(rows.texts), recall = structs_to_json(rows.recall);
  Tables tables{.files = {{"compare.jsonl", rows_jsonl(texts) + rows_jsonl(recall)},
                          {"compare.csv", rows_csv(texts)},
                          {"compare.html", compare_page(compared, rows, outcomes)}},
                .terminal = compare_table(rows)};
  if (!recall.empty()) tables.files.emplace_back("compare_recall.csv", rows_csv(recall));
  return tables;
}

/// Writes them and returns the table for a terminal.
std::string write_tables(const ComparePlan& plan, const Tables& tables) {
  for (const auto& [name, text] : tables.files)
    write_file_durably(std::filesystem::path(plan.config.out) / name, std::string_view(text));
  return tables.terminal;
}

/// Nothing is made before it is known that all of it can be.
int show_rows(const ComparePlan& plan, const std::string& path) {
  const std::filesystem::path out = plan.config.out;
  const Tables tables = tables_of(plan, read_compared_rows(path), {});
  std::filesystem::create_directories(out);
  const FolderLock lock(out, lock_name(0));
  fmt::print("{}{}\n", write_tables(plan, tables), (out / "compare.html").string());
  return 0;
}

/// Does the runs, and of several processes in the first writes what all have come to. One process
/// writes it after every run, so that a comparison of days can be looked at.
int compare_runs(const ComparePlan& plan, bool final_figures, Ranks& ranks) {
  install_stop_signals();
  CompareRunner runner(plan, final_figures, stop_signal, ranks);
  const std::vector<RunOutcome> outcomes =
      runner.run_all([&](const std::vector<RunOutcome>& known) {
        if (known.size() < plan.runs.size())
          write_tables(plan, tables_of(plan, compared_rows(known), known));
      });
  if (!ranks.first()) return 0;
  if (outcomes.size() < plan.runs.size()) {
    spdlog::info("stopped after {} of {} runs; run the same command again to continue",
                 outcomes.size(), plan.runs.size());
    return 1;
  }
  const std::string table = write_tables(plan, tables_of(plan, compared_rows(outcomes), outcomes));
  fmt::print("{}{}\n", table, (std::filesystem::path(plan.config.out) / "compare.html").string());
  const bool failed =
      std::ranges::any_of(outcomes, [](const RunOutcome& o) { return !o.error.empty(); });
  return failed ? 1 : 0;
}

}  // namespace

int run_compare(Arguments arguments) {
  std::string config_file, rows;
  bool dry = false, final_figures = false;
  CLI::App app(
      "Trains and evaluates every run of one config, each in a separate process, and writes one "
      "table: compare.html, compare.csv and compare.jsonl in the folder `out`; with eval.recall "
      "also compare_recall.csv. The files are written after every run; with several processes, "
      "after "
      "the last. Finished runs are not repeated; after Ctrl-C the same command continues. A failed "
      "run is listed, the other runs continue, and the exit status is 1.",
      "focus compare");
  app.add_option("config", config_file, "YAML config of a comparison, such as configs/compare.yaml")
      ->required();
  app.add_flag("--dry-run", dry,
               "list the runs with their parameters, tokens and time; train nothing");
  app.add_flag("--final", final_figures,
               "also evaluate eval.test and eval.test_texts: once, after all choices were made on "
               "eval.valid");
  app.add_option("--rows", rows,
                 "train nothing: render tables and page from the rows of this compare.jsonl");
  app.allow_extras();
  app.footer(
      "Several processes share the runs: mpirun -n 4 focus compare ...\n\nA config holds the keys "
      "below and\n  common: {...}        keys of a train config (focus train --help) that all runs "
      "share\n  runs: [{name: ...}]  a mapping for each run: its train keys, nested or dotted, and "
      "`sweep`;\n                       also seeds and attentions (of eval), for this run only\n  "
      "sweep: {key: [...]}  one run per value; several keys: one run per combination\nkey=value "
      "sets one of these keys, otherwise a train key in every run:\n\n" +
      describe_config(CompareConfig{}));
  parse_arguments(app, arguments);
  const std::unique_ptr<Ranks> ranks = join_ranks();
  int status = 0;
  run_as_one_of(*ranks, [&] {
    const ComparePlan plan =
        read_compare_plan(read_config_file(config_file), config_file, overrides_of(app));
    if (dry && ranks->count() > 1) fail("--dry-run runs in one process; start it without mpirun");
    if (!dry && final_figures && !plan.config.eval.has_tests())
      fail("{}: --final needs eval.test, which is empty: name texts", config_file);
    if (!rows.empty() && (dry || final_figures || ranks->count() > 1))
      fail("--rows cannot be combined with --dry-run, --final or mpirun");
    status = dry             ? list_runs(plan)
             : !rows.empty() ? show_rows(plan, rows)
                             : compare_runs(plan, final_figures, *ranks);
  });
  return status;
}

}  // namespace focus::app
