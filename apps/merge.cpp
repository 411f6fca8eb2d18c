#include <algorithm>
#include <cmath>
#include <filesystem>

#include "apps/command.h"
#include "autograd/check.h"

namespace focus {
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

struct Measured {
  Tensor logits;          // of the probe
  double perplexity = 0;  // of the texts, where there are any
};

Measured measure(LoadedModel& model, const std::vector<EvalText>& texts,
                 const EvalOptions& options) {
  const NoGrad guard;
  const AttentionMode dense{.kind = AttentionMode::Kind::dense};
  if (model.focus) model.focus->mode = dense;
  const std::vector<std::int32_t> ids = probe_ids(model, texts, options.context);
  Measured measured;
  measured.logits = model.decoder->logits(model.decoder->hidden_states(ids, 1)).value();
  if (!texts.empty())
    measured.perplexity =
        evaluate_mode(*model.decoder, model.focus.get(), dense, texts, options).score.perplexity();
  return measured;
}

}  // namespace

int run_merge(Arguments arguments) {
  std::string base, adapter, out, tokenizer, json;
  std::vector<std::string> paths;
  EvalOptions options{.context = 0, .stride = 0};
  TextOptions documents;
  int threads = 0;
  bool overwrite = false;
  CLI::App app(
      "Folds a LoRA adapter into the weights of its base and writes a model that needs no adapter; "
      "runs both on the same tokens, with dense attention, and prints the difference.",
      "focus merge");
  app.add_option("base", base, "the model: a store or a Hugging Face folder")->required();
  app.add_option("--adapter", adapter, "the adapter (lora.h5) or a PEFT folder")->required();
  app.add_option("--out", out, "the store to write (.h5)")->required();
  app.add_option("--text", paths,
                 "text files (.txt, .xz) or folders to evaluate both on; without them the logits "
                 "of random tokens are compared alone");
  app.add_option("--tokenizer", tokenizer, "instead of the model's own");
  app.add_option("--context", options.context,
                 "tokens of a window (default: 512, or the model's positions if fewer)");
  app.add_option("--stride", options.stride,
                 "tokens from one window to the next (default: half the context)");
  app.add_option("--max-tokens", documents.max_tokens,
                 "only the first tokens of each text; 0: all");
  app.add_flag("--overwrite", overwrite, "replace an existing store");
  app.add_option("--threads", threads, "threads");
  app.add_option("--json", json, "write the figures to this file too");
  parse_arguments(app, arguments);

  refuse_existing(out, overwrite);
  set_threads(threads);
  LoadedModel model = load_model(base, tokenizer);
  if (model.focus || model.rival)
    fail("{}: was trained with {}, which the merged store would not hold; merge a dense base", base,
         model.focus ? "Focus" : model.rival->name());
  load_adapter(adapter, model);
  if (!model.lora)
    fail("{}: is no LoRA adapter; Focus is attention and cannot be folded into weights", adapter);
  const Index positions = model.decoder->config().max_position_embeddings;
  options.fill_in(positions);
  if (options.context < 2 || options.context > positions)
    fail("--context {}: wanted from 2 to the {} positions of {}", options.context, positions, base);
  std::vector<EvalText> texts;
  if (!paths.empty()) texts = read_texts(model, paths, documents);

  const Measured before = measure(model, texts, options);
  model.lora->merge();
  const Measured after = measure(model, texts, options);
  double largest = 0, difference = 0;
  for (Index i = 0; i < before.logits.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(before.logits[i])));
    difference = std::max(difference, std::abs(static_cast<double>(before.logits[i]) -
                                               static_cast<double>(after.logits[i])));
  }

  StoreWriter store(out, "model");
  write_model(store, *model.decoder, model.tokenizer.get());
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

}  // namespace focus
