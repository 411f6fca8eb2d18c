#include "apps/command.h"
#include "data/files/durable_file.h"
#include "data/text/text.h"
#include "focus/evaluation/report/evaluation_file.h"
#include "focus/training/compare/compare_report.h"

namespace focus::app {

int run_report(Arguments arguments) {
  std::string out, title = "Focus";
  std::vector<std::string> runs, evaluations;
  CLI::App app(
      "Renders one self-contained HTML page from run folders and JSON files of focus eval.",
      "focus report");
  app.add_option("--run", runs, "run folders of focus train");
  app.add_option("--eval", evaluations, "files that focus eval --json wrote");
  app.add_option("--title", title, "page title");
  app.add_option("--out", out, "page to write (.html)")->required();
  parse_arguments(app, arguments);
  HtmlReport report(title);
  std::vector<EvaluationFile> read;
  for (const std::string& path : evaluations)
    read.push_back(
        evaluation_from_json(nlohmann::json::parse(read_text_file(path), nullptr, false), path));
  for (const EvaluationFile& eval : joined_evaluations(read)) add_evaluation(report, eval);
  if (!runs.empty()) report.heading("Training");
  for (const std::string& folder : runs) add_run(report, folder);
  write_file_durably(out, std::string_view(report.html()));
  fmt::print("{}\n", out);
  return 0;
}

}  // namespace focus::app
