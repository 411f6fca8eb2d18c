#include <algorithm>
#include <cmath>

#include "apps/command.h"
#include "autograd/base/check.h"
#include "data/tensors/tensor_source.h"

namespace focus::app {
namespace {

/// Logits of random tokens.
Tensor probe_logits(const LoadedModel& model, std::string_view state) {
  const NoGrad guard;
  Rng rng(0);
  const ModelConfig& config = model.decoder->config();
  std::vector<std::int32_t> ids(std::min<Index>(512, config.max_position_embeddings));
  for (auto& id : ids)
    id = static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(config.vocab_size)));
  Tensor logits = model.decoder->logits(model.decoder->hidden_states(ids, 1)).value();
  require_finite(logits.span(), model.where, state);
  return logits;
}

}  // namespace

int run_merge(Arguments arguments) {
  ModelOptions options;
  std::string out, json;
  bool overwrite = false;
  CLI::App app(
      "Merges a LoRA adapter into the weights of its base and writes a model that needs no "
      "adapter; groups that it was trained with come with it. Runs both on random tokens with "
      "dense attention and prints the difference.",
      "focus merge");
  options.add_to(app, {"precision", "bos", "tokenizer"});
  app.add_option("--out", out, "checkpoint file to write (.h5)")->required();
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

  const Tensor before = probe_logits(model, "logits with the adapter");
  model.lora()->merge();
  const Tensor after = probe_logits(model, "merged logits");
  double largest = 0, difference = 0;  // of the logits
  for (Index i = 0; i < before.size(); ++i) {
    const auto beside = static_cast<double>(before[i]);
    largest = std::max(largest, std::abs(beside));
    difference = std::max(difference, std::abs(beside - static_cast<double>(after[i])));
  }
  write_merged_model(out, model);

  fmt::print("largest logit difference     {:.2e} (largest logit {:.2f}, {} tokens)\n{} written\n",
             difference, largest, before.rows(), out);
  write_json(json, {{"model", base},
                    {"adapter", adapter},
                    {"store", out},
                    {"largest_logit", largest},
                    {"logit_difference", difference}});
  return 0;
}

}  // namespace focus::app
