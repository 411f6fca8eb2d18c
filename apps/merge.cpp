#include <algorithm>
#include <cmath>

#include "apps/command.h"
#include "autograd/base/check.h"
#include "data/tensors/tensor_source.h"

namespace focus::app {
namespace {

/// The first `context` tokens of the first text, or random ones without a text.
std::vector<std::int32_t> probe_ids(const LoadedModel& model, const std::vector<EvalText>& texts,
                                    Index context) {
  if (!texts.empty()) {
    const auto& ids = texts[0].ids;
    const auto size = std::min(ids.size(), static_cast<std::size_t>(context));
    return {ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(size)};
  }
  Rng rng(0);
  std::vector<std::int32_t> ids(context);
  const auto vocab_size = static_cast<std::uint64_t>(model.decoder->config().vocab_size);
  for (auto& id : ids) id = static_cast<std::int32_t>(rng.below(vocab_size));
  return ids;
}

struct DenseFigures {
  Tensor logits;          // of the probe
  double perplexity = 0;  // of the texts, where there are any
};

DenseFigures dense_figures(LoadedModel& model, const std::vector<EvalText>& texts,
                           const EvalSettings& settings, std::string_view state) {
  const NoGrad guard;
  const std::vector<std::int32_t> ids = probe_ids(model, texts, settings.context);
  DenseFigures measured;
  measured.logits = model.decoder->logits(model.decoder->hidden_states(ids, 1)).value();
  require_finite(measured.logits.span(), model.where, state);
  if (!texts.empty())
    measured.perplexity =
        evaluate(model, {.kind = AttentionKind::dense}, texts, settings).perplexity;
  return measured;
}

}  // namespace

int run_merge(Arguments arguments) {
  ModelOptions options;
  std::string out, json;
  std::vector<std::string> paths;
  EvalSettings settings;
  bool overwrite = false;
  CLI::App app(
      "Merges a LoRA adapter into the weights of its base and writes a model that needs no "
      "adapter; groups that it was trained with come with it. Runs both on the same tokens with "
      "dense attention and prints the difference.",
      "focus merge");
  options.add_to(app, {"precision"});
  app.add_option("--out", out, "checkpoint file to write (.h5)")->required();
  app.add_option("--text", paths,
                 "text files (.txt, .xz) or folders to evaluate both on; without them only the "
                 "logits of random tokens are compared");
  add_settings(app, only(config_fields(settings), {"context", "max_tokens"}));
  app.add_flag("--overwrite", overwrite, "replace an existing file");
  app.add_option("--json", json, kJsonHelp);
  parse_arguments(app, arguments);

  const std::string& base = options.base;
  const std::string& adapter = options.adapter;
  if (adapter.empty()) fail("--adapter: name the adapter (lora.h5), a PEFT folder or a GGUF LoRA");
  refuse_existing(out, overwrite);
  LoadedModel model = options.load(WeightUse::trainable);
  if (const SavedAdapter* own = model.files->attention())
    fail("{}: was trained with {}, which the merged file would lose; merge into a dense base", base,
         own->name);
  if (model.lora() == nullptr)
    fail("{}: is not a LoRA adapter; Focus is attention and cannot be merged into weights",
         adapter);
  settings = settings.for_model(model);
  std::vector<EvalText> texts;
  if (!paths.empty()) texts = read_texts(model, Texts::of_files(paths), settings);

  const DenseFigures before = dense_figures(model, texts, settings, "logits with the adapter");
  model.lora()->merge();
  const DenseFigures after = dense_figures(model, texts, settings, "merged logits");
  double largest = 0, difference = 0;  // of the logits
  for (Index i = 0; i < before.logits.size(); ++i) {
    const auto beside = static_cast<double>(before.logits[i]);
    largest = std::max(largest, std::abs(beside));
    difference = std::max(difference, std::abs(beside - static_cast<double>(after.logits[i])));
  }
  write_merged_model(out, model);

  const double perplexity_difference = after.perplexity - before.perplexity;
  if (!texts.empty())
    fmt::print(
        "perplexity with the adapter  {:.6f}\nperplexity merged            {:.6f}\n"
        "difference                   {:+.2e}\n",
        before.perplexity, after.perplexity, perplexity_difference);
  fmt::print("largest logit difference     {:.2e} (largest logit {:.2f}, {} tokens)\n{} written\n",
             difference, largest, before.logits.rows(), out);
  nlohmann::ordered_json figures = {{"model", base},
                                    {"adapter", adapter},
                                    {"store", out},
                                    {"largest_logit", largest},
                                    {"logit_difference", difference}};
  if (!texts.empty()) {
    figures["perplexity_adapter"] = before.perplexity;
    figures["perplexity_merged"] = after.perplexity;
    figures["perplexity_difference"] = perplexity_difference;
  }
  write_json(json, figures);
  return 0;
}

}  // namespace focus::app
