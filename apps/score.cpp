#include "apps/command.h"
#include "apps/terminal/progress.h"
#include "data/files/durable_file.h"
#include "focus/evaluation/scores/requests.h"

namespace focus::app {

int run_score(Arguments arguments) {
  ModelOptions options;
  std::string file, out, attention;
  ScoreOptions scoring;
  bool overwrite = false;
  CLI::App app(
      "Answers requests in the form of the lm-evaluation-harness: loglikelihood {context, "
      "continuation}, loglikelihood_rolling {text}, generate_until {context, until, max_gen_toks}. "
      "Requests with a common prefix share its computation.",
      "focus score");
  options.add_to(app);
  app.add_option("--requests", file, "requests (.jsonl), one object per line")->required();
  app.add_option("--out", out, "answers to write (.jsonl), in the order of the requests")
      ->required();
  add_one_attention(app, attention);
  add_settings(app, config_fields(scoring));
  app.add_flag("--overwrite", overwrite, "replace --out if it exists");
  parse_arguments(app, arguments);

  refuse_existing(out, overwrite);
  const std::vector<ScoreRequest> requests = read_requests(file);
  LoadedModel model = options.load();
  const AttentionSpec spec = one_attention(attention, model);
  const std::string title = ActiveAttention(model, spec).title();
  ScoringWork work;
  const std::vector<ScoreAnswer> answers =
      answer_requests(model, spec, requests, scoring, share_bar("score " + title), &work);
  std::string lines;
  Index tokens = 0, cut = 0;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    lines += answer_line(requests[i], answers[i]) + "\n";
    tokens += answers[i].tokens;
    cut += answers[i].cut > 0 ? 1 : 0;
  }
  write_file_durably(out, std::string_view(lines));
  if (cut > 0)
    fmt::print(stderr,
               "{} of {} contexts were too long and were cut on the left (\"cut\" is the number of "
               "tokens)\n",
               cut, answers.size());
  fmt::print("{}: {} answers, {} tokens, attention {}\n", out, answers.size(), tokens, title);
  if (work.tokens > 0)
    fmt::print("{} of {} tokens computed; the others are shared\n", work.computed, work.tokens);
  return 0;
}

}  // namespace focus::app
