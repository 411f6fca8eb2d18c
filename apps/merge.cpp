#include "apps/command.h"
#include "autograd/base/check.h"
#include "focus/evaluation/merging.h"

namespace focus::app {
int run_merge(Arguments arguments) {
  ModelOptions options;
  std::string out, json;
  std::vector<std::string> paths;
  EvalSettings settings;
  bool overwrite = false;
  CLI::App app(
      "Merges a LoRA adapter into the weights of its base and writes a model that needs no "
      "adapter. Runs both on the same tokens with dense attention and prints the difference.",
      "focus merge");
  options.add_to(app, {"precision"});
  app.add_option("--out", out, "checkpoint file to write (.h5)")->required();
  app.add_option("--text", paths,
                 "text files (.txt, .xz) or folders to evaluate both on; without them only the "
                 "logits of random tokens are compared");
  add_settings(app, only(config_fields(settings), {"context", "max_tokens"}));
  app.add_flag("--overwrite", overwrite, "replace an existing file");
  app.add_option("--json", json, "also write the figures to this JSON file");
  parse_arguments(app, arguments);

  const std::string& base = options.base;
  const std::string& adapter = options.adapter;
  if (adapter.empty()) fail("--adapter: name the adapter (lora.h5), a PEFT folder or a GGUF LoRA");
  refuse_existing(out, overwrite);
  const ModelFiles files = open_model(base, options.tokenizer);
  if (const SavedAdapter* own = files.attention())
    fail("{}: was trained with {}, which the merged file would lose; merge into a dense base", base,
         own->name);
  LoadedModel model = options.load(WeightUse::trainable);
  if (model.lora() == nullptr)
    fail("{}: is not a LoRA adapter; Focus is attention and cannot be merged into weights",
         adapter);
  settings = settings.for_model(model);
  std::vector<EvalText> texts;
  if (!paths.empty()) texts = read_texts(model, paths, settings);

  const MergeComparison merged = merge_and_compare(model, texts, settings);
  StoreWriter store(out, "model");
  write_model(store, model);
  store.commit();

  const double perplexity_difference = merged.perplexity_merged - merged.perplexity_adapter;
  if (!texts.empty())
    fmt::print(
        "perplexity with the adapter  {:.6f}\nperplexity merged            {:.6f}\n"
        "difference                   {:+.2e}\n",
        merged.perplexity_adapter, merged.perplexity_merged, perplexity_difference);
  fmt::print("largest logit difference     {:.2e} (largest logit {:.2f}, {} tokens)\n{} written\n",
             merged.logit_difference, merged.largest_logit, merged.tokens, out);
  nlohmann::ordered_json figures = {{"model", base},
                                    {"adapter", adapter},
                                    {"store", out},
                                    {"largest_logit", merged.largest_logit},
                                    {"logit_difference", merged.logit_difference}};
  if (!texts.empty()) {
    figures["perplexity_adapter"] = merged.perplexity_adapter;
    figures["perplexity_merged"] = merged.perplexity_merged;
    figures["perplexity_difference"] = perplexity_difference;
  }
  write_json(json, figures);
  return 0;
}

}  // namespace focus::app
