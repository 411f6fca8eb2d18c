#include <algorithm>
#include <cmath>

#include "apps/command.h"
#include "autograd/base/check.h"

namespace focus::app {
namespace {

/// The first `context` tokens of the first text, or random ones where there is none.
std::vector<std::int32_t> probe_ids(const LoadedModel& model, const std::vector<EvalText>& texts,
                                    Index context) {
  if (!texts.empty()) {
    const auto& ids = texts[0].ids;
    const auto size = std::min(ids.size(), static_cast<std::size_t>(context));
    return {ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(size)};
  }
  Rng rng(0);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(context));
  const auto vocab_size = static_cast<std::uint64_t>(model.decoder->config().vocab_size);
  for (auto& id : ids) id = static_cast<std::int32_t>(rng.below(vocab_size));
  return ids;
}

struct DenseFigures {
  Tensor logits;          // of the probe
  double perplexity = 0;  // of the texts, where there are any
};

DenseFigures dense_figures(LoadedModel& model, const std::vector<EvalText>& texts,
                           const EvalSettings& settings) {
  const NoGrad guard;
  const std::vector<std::int32_t> ids = probe_ids(model, texts, settings.context);
  DenseFigures measured;
  measured.logits = model.decoder->logits(model.decoder->hidden_states(ids, 1)).value();
  if (!texts.empty())
    measured.perplexity =
        evaluate(model, {.kind = AttentionKind::dense}, texts, settings).score.perplexity();
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
      "Folds a LoRA adapter into the weights of its base and writes a model that needs no adapter; "
      "runs both on the same tokens, with dense attention, and prints the difference.",
      "focus merge");
  options.add_to(app);
  app.add_option("--out", out, "the store to write (.h5)")->required();
  app.add_option("--text", paths,
                 "text files (.txt, .xz) or folders to evaluate both on; without them the logits "
                 "of random tokens are compared alone");
  add_eval_options(app, settings);
  app.add_flag("--overwrite", overwrite, "replace an existing store");
  app.add_option("--json", json, "write the figures to this file too");
  parse_arguments(app, arguments);

  const std::string& base = options.base;
  const std::string& adapter = options.adapter;
  if (adapter.empty()) fail("--adapter: name the adapter (lora.h5), a PEFT folder or a GGUF LoRA");
  if (options.precision != Precision::float32)
    fail("--precision {}: merging changes the weights, which are float32 then; leave it out",
         name_of(options.precision));
  refuse_existing(out, overwrite);
  const ModelFiles files = open_model(base, options.tokenizer);
  if (const SavedAdapter* own = files.attention())
    fail("{}: was trained with {}, which the merged store would not hold; merge a dense base", base,
         own->name);
  LoadedModel model = options.load(WeightUse::trainable);
  LoraModel* const lora = model.lora();
  if (lora == nullptr)
    fail("{}: is no LoRA adapter; Focus is attention and cannot be folded into weights", adapter);
  settings = settings.for_model(model);
  std::vector<EvalText> texts;
  if (!paths.empty()) texts = read_texts(model, paths, settings);

  const DenseFigures before = dense_figures(model, texts, settings);
  lora->merge();
  const DenseFigures after = dense_figures(model, texts, settings);
  double largest = 0, difference = 0;
  for (Index i = 0; i < before.logits.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(before.logits[i])));
    difference = std::max(difference, std::abs(static_cast<double>(before.logits[i]) -
                                               static_cast<double>(after.logits[i])));
  }

  StoreWriter store(out, "model");
  write_model(store, model);
  store.commit();

  if (!texts.empty())
    fmt::print(
        "perplexity with the adapter  {:.6f}\nperplexity merged            {:.6f}\n"
        "difference                   {:+.2e}\n",
        before.perplexity, after.perplexity, after.perplexity - before.perplexity);
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
    figures["perplexity_difference"] = after.perplexity - before.perplexity;
  }
  write_json(json, figures);
  return 0;
}

}  // namespace focus::app
