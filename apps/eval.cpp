#include <spdlog/spdlog.h>

#include <algorithm>

#include "apps/command.h"
#include "apps/mpi.h"
#include "apps/terminal/progress.h"
#include "autograd/base/check.h"
#include "data/files/durable_file.h"
#include "data/settings/struct_json.h"
#include "focus/evaluation/report/evaluation_file.h"

namespace focus::app {
namespace {

/// Calls f(spec, progress) for every attention.
template <class F>
void for_each_attention(LoadedModel& model, const EvalSettings& settings, const std::string& label,
                        F&& f) {
  for (const AttentionSpec& spec : resolve_words(
           settings.attentions, model, DefaultBalance::causal_and_trained, "--attention")) {
    f(spec, share_bar(fmt::format("{} {}", label, ActiveAttention(model, spec).name())));
  }
}

struct EvalArguments {
  ModelOptions options;
  EvalSettings settings;
  std::vector<std::string> paths;
  std::string json, recall, html;
  bool with_speed = false;
  Ranks* ranks = &one_process();  // that share the work
};

void print_legend(const LoadedModel& model) {
  fmt::print("\n{}", row_legend());
  if (model.focus() && model.focus()->grouping_kind().groups_tokens)
    fmt::print("; balanced groups have {:.1f} % each", 100.0 / model.focus()->config().num_groups);
  fmt::print("\n");
}

RecallEvaluation evaluate_recalls(LoadedModel& model, const EvalArguments& o) {
  const std::vector<RecallItem> items =
      recall_items(model, asked_documents(o.recall), o.recall, o.settings.beyond_positions);
  RecallEvaluation recall{.questions = o.recall,
                          .documents = static_cast<std::int64_t>(items.size())};
  for_each_attention(model, o.settings, "recall", [&](const AttentionSpec& spec, auto&& done) {
    recall.rows.push_back(evaluate_recall(model, spec, items, done, *o.ranks));
  });
  fmt::print("\nrecall: {}, {} documents; {}\n{}", o.recall, items.size(), kRecallLegend,
             plain_text(recall_table(recall.rows), 2));
  return recall;
}

void write_evaluation_page(const EvalArguments& o, const EvaluationFile& figures) {
  HtmlReport report("Evaluation of " + o.options.base);
  add_evaluation(report, figures);
  write_file_durably(o.html, std::string_view(report.html()));
}

/// A window that no text fills would give the figures of a shorter one under its name. Texts cut by
/// --separator or --max-tokens are short on purpose.
void refuse_short(const std::vector<EvalText>& texts, const EvalArguments& o) {
  const auto longest =
      std::ranges::max_element(texts, {}, [](const EvalText& text) { return text.ids.size(); });
  const auto tokens = static_cast<Index>(longest->ids.size());
  if (longest->is_example || !o.settings.separator.empty() || o.settings.max_tokens > 0) return;
  if (tokens < o.settings.context)
    fail("{}: {} tokens do not fill a window of {}: give more text or a shorter context",
         longest->name, tokens, o.settings.context);
}

/// Prints a table of the rows.
TextEvaluation evaluate_texts(LoadedModel& model, const EvalArguments& o) {
  const EvalSettings settings = o.settings.for_model(model);
  const std::vector<EvalText> texts = read_texts(model, Texts::of_files(o.paths), settings);
  refuse_short(texts, o);

  TextEvaluation figures = describe_texts(model, texts, settings);
  fmt::print("{} text{}, {} bytes, {} words, tokenizer {} {}\n", texts.size(),
             texts.size() == 1 ? "" : "s", figures.bytes, figures.words, figures.tokenizer.kind,
             figures.tokenizer.fingerprint);
  for (const auto& notice :
       {positions_notice(model, settings.context), fit_notice(model, settings.context)})
    if (!notice.empty()) spdlog::info("{}", notice);
  DenseReference dense;
  for_each_attention(model, settings, "eval", [&](const AttentionSpec& spec, auto&& done) {
    figures.rows.push_back(evaluate(model, spec, texts, settings,
                                    {.progress = done, .dense = &dense, .ranks = o.ranks}));
  });
  fmt::print("\ncontext {}, stride {}, precision {}\n{}", settings.context, settings.stride,
             name_of(o.options.precision), plain_text(row_table(figures.rows), 2));
  print_legend(model);
  if (!o.with_speed)
    for (Row& row : figures.rows) row.tokens_per_second.reset();
  return figures;
}

/// All that was asked for, in this order; of several processes the first one prints and writes.
void evaluate_all(const CLI::App& app, EvalArguments& o) {
  only_rank_zero_prints(*o.ranks);
  LoadedModel model = first_before_others(*o.ranks, [&] { return o.options.load(); });
  take_fitted_context(app, model, o.settings);
  EvaluationFile figures{
      .model = o.options.base, .adapter = o.options.adapter, .precision = o.options.precision};
  if (!o.paths.empty()) figures.texts = evaluate_texts(model, o);
  if (!o.recall.empty()) figures.recall = evaluate_recalls(model, o);
  if (!o.ranks->first()) return;
  if (!o.html.empty()) write_evaluation_page(o, figures);
  write_json(o.json, struct_to_json(figures));
}

void add_options_of_eval(CLI::App& app, EvalArguments& o) {
  o.options.add_to(app);
  CLI::Option_group* input = app.add_option_group("input", "texts, questions or both");
  input->add_option("--text", o.paths,
                    "text files (.txt, .xz) or folders, each one stream of tokens");
  input->add_option(
      "--recall", o.recall,
      "long-range questions and answers: JSON lines written by focus corpus --questions, or a kind "
      "with its options, recall:keys=8:distance=64,256:documents=100");
  input->require_option(1, 2);
  add_attention_option(
      app, o.settings.attentions,
      config_fields(o.settings)[0].help +
          "; default: dense, focus, and the attention that the model was trained with");
  add_settings(app, without(config_fields(o.settings), {"attentions"}));
  app.add_option("--html", o.html, "HTML page with tables and charts");
  app.add_option("--json", o.json, kJsonHelp);
  app.add_flag("--json-speed", o.with_speed,
               "add tokens_per_second to the JSON, which is reproducible without it");
}

}  // namespace

int run_eval(Arguments arguments) {
  EvalArguments o;
  CLI::App app(
      "Perplexity of texts by the strided evaluation of transformers' documentation, for dense, "
      "soft and hard k=1..K attention, or for the attentions of --attention, on the same windows.",
      "focus eval");
  app.footer("Several processes share the windows of an evaluation: mpirun -n 4 focus eval ...");
  add_options_of_eval(app, o);
  parse_arguments(app, arguments);
  const std::unique_ptr<Ranks> ranks = join_ranks();
  o.ranks = ranks.get();
  run_as_one_of(*ranks, [&] { evaluate_all(app, o); });
  return 0;
}

}  // namespace focus::app
