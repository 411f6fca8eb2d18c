#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "apps/command.h"
#include "apps/mpi.h"
#include "apps/terminal/progress.h"
#include "autograd/base/check.h"
#include "data/files/durable_file.h"
#include "data/settings/struct_json.h"
#include "focus/evaluation/positions.h"
#include "focus/evaluation/report/evaluation_page.h"
#include "focus/evaluation/report/precision_table.h"

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

void print_legend(const LoadedModel& model) {
  if (model.focus() && !model.focus()->grouping_kind().groups_tokens)
    fmt::print(
        "\ntok/s: tokens scored per second; pairs: attention density, the share of causal pairs "
        "computed, a summary token counts as one; selection: selection overhead, in pair "
        "equivalents; largest: the largest group's share of its head's keys, mean over layers; "
        "groups of keys need no balance\n");
  else if (model.focus())
    fmt::print(
        "\ntok/s: tokens scored per second; pairs: attention density, the share of causal pairs "
        "computed; selection: selection overhead, in pair equivalents; largest: the largest "
        "group's share (balanced: {:.1f}%), mean over layers\n",
        100.0 / model.focus()->config().num_groups);
}

struct EvalArguments {
  ModelOptions options;
  std::vector<Precision> precisions = {Precision::float32};
  EvalSettings settings;
  std::vector<std::string> paths;
  std::vector<Index> lengths;
  std::string json, reference, recall, html;
  Index far = 0;  // tokens of short context; 0: no far tokens
  bool with_speed = false;
  Ranks* ranks = &one_process();  // that share the work
};

/// One context, and what its rows came to: of each kind of products all attentions, one kind after
/// the other.
struct WindowRows {
  EvalSettings settings;
  std::vector<EvalRow> rows = {};
  std::vector<RowLosses> losses = {};  // as many as rows, or none
};

/// Adds the rows of a model.
void evaluate_windows(LoadedModel& model, std::span<const EvalText> texts, const EvalArguments& o,
                      WindowRows& windows) {
  const EvalSettings& settings = windows.settings;
  for (const auto& notice :
       {positions_notice(model, settings.context), fit_notice(model, settings.context)})
    if (!notice.empty()) spdlog::info("{}", notice);
  DenseReference dense;
  const bool by_token = o.far > 0 || !o.html.empty() || o.precisions.size() > 1;
  std::string label = fmt::format("eval {}", settings.context);
  if (o.precisions.size() > 1) label += fmt::format(" {}", name_of(o.options.precision));
  for_each_attention(model, settings, label, [&](const AttentionSpec& spec, auto&& done) {
    TokenLosses tokens;
    EvalRow row = evaluate(model, spec, texts, settings,
                           {.progress = done,
                            .dense = &dense,
                            .losses = by_token ? &tokens : nullptr,
                            .ranks = o.ranks});
    if (by_token) windows.losses.push_back({row.name, row.routing, std::move(tokens)});
    windows.rows.push_back(std::move(row));
  });
}

/// The model of --reference, where one is named.
std::optional<LoadedModel> load_reference(const EvalArguments& o) {
  if (o.reference.empty()) return std::nullopt;
  LoadedModel reference = load_model(o.reference, o.options.tokenizer, o.options.precision);
  reference.bos = o.options.bos;
  return reference;
}

/// Prints a context's table, and of far tokens where these are asked for.
WindowEvaluation print_windows(LoadedModel& model, std::span<const EvalText> texts,
                               const EvalArguments& o, WindowRows windows, LoadedModel* reference) {
  const EvalSettings& settings = windows.settings;
  fmt::print("\ncontext {}, stride {}\n\n{}", settings.context, settings.stride,
             format_rows(windows.rows));
  WindowEvaluation figures{.context = settings.context,
                           .stride = settings.stride,
                           .rows = evaluation_rows(windows.rows, o.with_speed)};
  if (o.precisions.size() > 1) {
    compare_precisions(windows.losses, o.precisions.size(), figures.rows);
    fmt::print("\n{}", plain_text(precision_table(o.precisions.size(), figures.rows), 2));
    return figures;
  }
  for (std::size_t i = 0; i < windows.losses.size(); ++i)
    figures.rows[i].by_position = losses_by_position(windows.losses[i].losses);
  if (o.far > 0) {
    figures.far = measure_far(model, texts, settings, {.context = o.far}, std::move(windows.losses),
                              *o.ranks, reference);
    fmt::print("\n{}", format_far(*figures.far));
  }
  return figures;
}

RecallEvaluation evaluate_recalls(LoadedModel& model, const EvalArguments& o) {
  const std::vector<RecallItem> items =
      recall_items(model, asked_documents(o.recall), o.recall, o.settings.beyond_positions);
  std::vector<RecallRow> rows;
  for_each_attention(model, o.settings, "recall", [&](const AttentionSpec& spec, auto&& done) {
    rows.push_back(evaluate_recall(model, spec, items, done, *o.ranks));
  });
  fmt::print(
      "\nrecall: {}, {} documents; correct: every token of the answer is the argmax; by distance "
      "in tokens\n\n{}",
      o.recall, items.size(), format_recall(rows));
  return {.questions = o.recall,
          .documents = static_cast<std::int64_t>(items.size()),
          .rows = recall_figures(rows)};
}

void write_evaluation_page(const EvalArguments& o, const EvaluationFile& figures) {
  HtmlReport report("Evaluation of " + o.options.base);
  for (const std::string& sentence : findings(figures)) report.paragraph(sentence);
  add_evaluation(report, figures, o.html);
  write_file_durably(o.html, std::string_view(report.html()));
}

/// A window that no text fills would give the figures of a shorter one under its name; and where
/// nothing stands far before, nothing can be said of far tokens. Texts cut by --separator or
/// --max-tokens are short on purpose.
void refuse_short(const std::vector<EvalText>& texts, const EvalArguments& o) {
  const auto longest =
      std::ranges::max_element(texts, {}, [](const EvalText& text) { return text.ids.size(); });
  const auto tokens = static_cast<Index>(longest->ids.size());
  if (o.far > 0 && tokens < o.far + 2)
    fail("{}: {} tokens, so no token has more than {} before it: give more text or a smaller --far",
         longest->name, tokens, o.far);
  if (longest->is_example || !o.settings.separator.empty() || o.settings.max_tokens > 0) return;
  Index window = o.settings.context;
  for (const Index length : o.lengths) window = std::max(window, length);
  if (tokens < window)
    fail("{}: {} tokens do not fill a window of {}: give more text or a shorter context",
         longest->name, tokens, window);
}

/// Puts the model in another of the computes in its place, once that is given back.
void load_for(std::optional<LoadedModel>& model, Precision precision, EvalArguments& o) {
  model.reset();
  o.options.precision = precision;
  model.emplace(o.options.load());
}

/// Prints a table for each length, and of several one that has them all. `model` is in the first of
/// the computes, and in the last one after.
TextEvaluation evaluate_texts(std::optional<LoadedModel>& model, EvalArguments& o) {
  std::vector<WindowRows> windows(std::max<std::size_t>(1, o.lengths.size()), {o.settings});
  for (std::size_t i = 0; i < o.lengths.size(); ++i) windows[i].settings.context = o.lengths[i];
  for (WindowRows& one : windows) one.settings = one.settings.for_model(*model);
  const std::vector<EvalText> texts = read_texts(*model, o.paths, o.settings);
  refuse_short(texts, o);
  std::optional<LoadedModel> reference = load_reference(o);
  if (reference) require_comparable(*reference, *model);  // before hours of rows

  const Tokenizer& tokenizer = model->require_tokenizer();
  TextEvaluation figures{.documents = static_cast<std::int64_t>(texts.size()),
                         .tokenizer = {tokenizer.kind(), tokenizer.fingerprint()}};
  for (const EvalText& text : texts) {
    figures.bytes += text.bytes;
    figures.words += text.words;
    if (figures.texts.empty() || figures.texts.back() != text.name)
      figures.texts.push_back(text.name);
  }
  fmt::print("{} text{}, {} bytes, {} words, tokenizer {} {}\n", texts.size(),
             texts.size() == 1 ? "" : "s", figures.bytes, figures.words, figures.tokenizer.kind,
             figures.tokenizer.fingerprint);
  std::vector<WindowEvaluation> of_lengths;
  for (const Precision precision : o.precisions) {
    if (precision != o.options.precision) load_for(model, precision, o);
    for (WindowRows& one : windows) {
      evaluate_windows(*model, texts, o, one);
      if (precision == o.precisions.back())
        of_lengths.push_back(
            print_windows(*model, texts, o, std::move(one), reference ? &*reference : nullptr));
    }
  }
  if (of_lengths.size() > 1) fmt::print("\n{}", plain_text(perplexity_by_length(of_lengths), 1));
  print_legend(*model);
  if (model->focus()) figures.num_groups = model->focus()->config().num_groups;
  if (o.lengths.empty())
    figures.windows = std::move(of_lengths.front());
  else
    figures.lengths = std::move(of_lengths);
  return figures;
}

/// All that was asked for, in this order; of several processes the first one prints and writes.
void evaluate_all(EvalArguments& o) {
  if (o.far > 0 && o.paths.empty()) fail("--far needs --text");
  if (!o.reference.empty() && o.far == 0) fail("--reference needs --far");
  only_rank_zero_prints(*o.ranks);
  o.options.precision = o.precisions.front();
  std::optional<LoadedModel> model =
      first_before_others(*o.ranks, [&] { return o.options.load(); });
  EvaluationFile figures{.model = o.options.base, .adapter = o.options.adapter, .precision = {}};
  for (const Precision precision : o.precisions)
    figures.precision += (figures.precision.empty() ? "" : ",") + std::string(name_of(precision));
  if (!o.paths.empty()) figures.texts = evaluate_texts(model, o);
  if (!o.recall.empty()) figures.recall = evaluate_recalls(*model, o);
  if (figures.texts && figures.texts->windows && figures.recall)
    fmt::print("\n{}", plain_text(overview(figures), 1));
  if (!o.ranks->first()) return;
  if (!o.html.empty()) write_evaluation_page(o, figures);
  write_json(o.json, struct_to_json(figures));
}

void add_options_of_eval(CLI::App& app, EvalArguments& o) {
  o.options.add_to(app, {"precision"});
  std::vector<ConfigField> precisions;
  ConfigFieldCollector(precisions, "")(
      "precision", o.precisions,
      std::string(kPrecisionHelp) + "; a list such as float32,q8 compares each with the first");
  add_settings(app, precisions);
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
  app.add_option("--lengths", o.lengths,
                 "several contexts instead of one: a table for each, and one of all")
      ->delimiter(',');
  app.add_option("--reference", o.reference,
                 "with --far: model that defines the long-range tokens (default: the model's own "
                 "dense attention)");
  app.add_option("--far", o.far,
                 "loss on long-range tokens: those that dense attention predicts better, by 0.5 "
                 "nats, than the same model with this many tokens of context")
      ->check(CLI::Range(Index{1}, Index{1} << 22));
  app.add_option("--html", o.html, "HTML page with tables, charts and the loss by position");
  app.add_option("--json", o.json, "also write the figures to this JSON file");
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

  for (const Precision precision : o.precisions)
    if (std::ranges::count(o.precisions, precision) > 1)
      fail("--precision: {} appears twice", name_of(precision));
  if (o.precisions.size() > 1 && (!o.recall.empty() || o.far > 0 || !o.html.empty()))
    fail(
        "--precision: several can be compared on --text only, without a page: name one, or leave "
        "--recall, --far and --html out");
  const std::unique_ptr<Ranks> ranks = join_ranks();
  o.ranks = ranks.get();
  run_as_one_of(*ranks, [&] { evaluate_all(o); });
  return 0;
}

}  // namespace focus::app
