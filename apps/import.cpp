#include "apps/command.h"
#include "autograd/check.h"
#include "data/safetensors.h"

namespace focus {

int run_import(Arguments arguments) {
  std::string folder, out, tokenizer, json;
  bool overwrite = false, allow_nonfinite = false;
  CLI::App app(
      "Imports a Hugging Face folder (config.json, model.safetensors or its shards, tokenizer) "
      "into "
      "a store.",
      "focus import");
  app.add_option("folder", folder, "the folder")->required();
  app.add_option("--out", out, "the store to write (.h5)")->required();
  app.add_option("--tokenizer", tokenizer, "bytes, or a tokenizer's file, instead of the folder's");
  app.add_option("--json", json, "write the figures to this file too");
  app.add_flag("--overwrite", overwrite, "replace an existing store");
  app.add_flag("--allow-nonfinite", allow_nonfinite, "import NaN and infinite weights");
  parse_arguments(app, arguments);

  refuse_existing(out, overwrite);
  LoadedModel model = load_model(folder, tokenizer);
  if (std::filesystem::is_directory(folder)) {
    const NonFinite bad = count_nonfinite(*open_safetensors_folder(folder));
    if (bad.count > 0 && !allow_nonfinite)
      fail(
          "{}: {} weights are NaN or infinite, the first in {}; --allow-nonfinite imports them all "
          "the same",
          folder, bad.count, bad.first);
  }
  StoreWriter store(out, "model");
  write_model(store, *model.decoder, model.tokenizer.get());
  store.commit();

  const ModelConfig& config = model.decoder->config();
  const Index parameters = count_parameters(*model.decoder);
  fmt::print("{}: {}, {} layers, width {}, {} parameters, fingerprint {}\n", out, config.model_type,
             config.num_hidden_layers, config.hidden_size, parameters, model.fingerprint);
  if (model.tokenizer)
    fmt::print("tokenizer: {}, {} ids, fingerprint {}\n", model.tokenizer->kind(),
               model.tokenizer->vocab_size(), model.tokenizer->fingerprint());
  else
    fmt::print("notice: no tokenizer in {}; name one with --tokenizer where text is read\n",
               folder);
  write_json(json,
             {{"store", out},
              {"model_type", config.model_type},
              {"parameters", parameters},
              {"fingerprint", model.fingerprint},
              {"tokenizer", model.tokenizer ? nlohmann::ordered_json(model.tokenizer->fingerprint())
                                            : nlohmann::ordered_json()}});
  return 0;
}

}  // namespace focus
