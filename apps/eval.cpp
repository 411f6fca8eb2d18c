#include "apps/command.h"
#include "apps/terminal/progress.h"

namespace focus {
namespace {

using Json = nlohmann::ordered_json;

std::vector<EvalRow> evaluate_all(LoadedModel& model, std::span<const EvalText> texts,
                                  const EvalSettings& settings) {
  std::vector<EvalRow> rows;
  for (const AttentionSpec& spec : resolve_words(
           settings.attentions, model, UnsaidBalance::causal_and_trained, "--attention")) {
    Progress progress({.label = "eval " + ActiveAttention(model, spec).name(),
                       .total_steps = 1000,
                       .line_every = 1 << 30});
    rows.push_back(evaluate(model, spec, texts, settings, [&](double share) {
      progress.update(static_cast<std::int64_t>(share * 1000), NAN, 0);
    }));
  }
  return rows;
}

}  // namespace

int run_eval(Arguments arguments) {
  ModelOptions options;
  EvalSettings settings;
  std::vector<std::string> paths;
  std::string json;
  bool with_speed = false;
  CLI::App app(
      "Perplexity of texts by the strided recipe of transformers' documentation, for dense, soft "
      "and hard k=1..K attention, or those that --attention names, on the same windows.",
      "focus eval");
  options.add_to(app);
  app.add_option("--text", paths, "text files (.txt, .xz) or folders, one stream of tokens each")
      ->required();
  add_attention_option(app, settings.attentions,
                       recipe_fields(settings)[0].help +
                           "; without it: dense, focus, and what the model was trained with");
  add_eval_options(app, settings);
  refuse_attention_options(app, {"--routing", "--hard-gate", "--max-top-k", "--local-only"});
  app.add_option("--json", json, "write the figures to this file too");
  app.add_flag("--json-speed", with_speed,
               "put tokens_per_second into the JSON, which without it is the same every time");
  parse_arguments(app, arguments);

  LoadedModel model = options.load();
  settings = settings.for_model(model);
  const std::vector<EvalText> texts = read_texts(model, paths, settings);
  const std::vector<EvalRow> rows = evaluate_all(model, texts, settings);

  std::int64_t bytes = 0;
  Json names = Json::array();
  for (const EvalText& text : texts) {
    bytes += text.bytes;
    if (names.empty() || names.back() != text.name) names.push_back(text.name);
  }
  const Tokenizer& own = model.require_tokenizer();
  const int groups = model.focus() ? model.focus()->config().num_groups : 0;
  fmt::print("{} text{}, {} bytes, tokenizer {} {}, context {}, stride {}\n\n", texts.size(),
             texts.size() == 1 ? "" : "s", bytes, own.kind(), own.fingerprint(), settings.context,
             settings.stride);
  fmt::print("{}", format_rows(rows));
  if (model.focus() && model.focus()->groups_keys())
    fmt::print(
        "\ntok/s: tokens scored in a second; pairs: share of the causal pairs that are attended, a "
        "column counts as one; largest: the share of its head's keys that the largest group has, "
        "mean over layers; columns need no balance\n");
  else if (groups > 0)
    fmt::print(
        "\ntok/s: tokens scored in a second; pairs: share of the causal pairs that are attended; "
        "largest: the largest group's share (balance is {:.1f}%), mean over layers\n",
        100.0 / groups);
  write_json(json, {{"model", options.base},
                    {"adapter", options.adapter},
                    {"texts", names},
                    {"documents", texts.size()},
                    {"bytes", bytes},
                    {"tokenizer", {{"kind", own.kind()}, {"fingerprint", own.fingerprint()}}},
                    {"context", settings.context},
                    {"stride", settings.stride},
                    {"compute", name_of(options.compute)},
                    {"num_groups", groups},
                    {"rows", rows_to_json(rows, with_speed)}});
  return 0;
}

}  // namespace focus
