#include <fmt/ranges.h>

#include "apps/command.h"
#include "autograd/base/check.h"
#include "autograd/gemm/block_formats.h"
#include "focus/models/model_export.h"

namespace focus::app {

int run_import(Arguments arguments) {
  std::string folder, out, tokenizer, dtype, json;
  bool overwrite = false, allow_nonfinite = false;
  const std::vector<std::string> dtypes = weight_dtypes(kRoundedFormats);
  CLI::App app(
      "Imports a Hugging Face folder (config.json, model.safetensors or its shards, tokenizer) or "
      "a GGUF file into a checkpoint file (.h5). Every tensor keeps its type, GGUF blocks "
      "included; --dtype converts.",
      "focus import");
  app.add_option("folder", folder, "Hugging Face folder or GGUF file")->required();
  app.add_option("--out", out, "checkpoint file to write (.h5)")->required();
  app.add_option("--tokenizer", tokenizer,
                 "tokenizer to use instead of the folder's: bytes or a file");
  app.add_option("--dtype", dtype,
                 fmt::format("dtype of the weights (default: unchanged): {}; block types (q8_0 "
                             "...) apply to matrices, and vectors become float32",
                             fmt::join(dtypes, ", ")))
      ->check(CLI::IsMember(dtypes));
  app.add_option("--json", json, kJsonHelp);
  app.add_flag("--overwrite", overwrite, "replace an existing file");
  app.add_flag("--allow-nonfinite", allow_nonfinite, "also import NaN and infinite weights");
  parse_arguments(app, arguments);

  refuse_existing(out, overwrite);
  const ModelFiles files = open_model(folder, tokenizer);
  StoreWriter store(out, "model");
  write_model_head(store, files.config, files.tokenizer.get(), files.side_files);
  const ImportedModel imported = import_weights(
      files, store,
      dtype.empty() ? std::nullopt : std::optional(weight_dtype(dtype, kRoundedFormats).dtype));
  const ReadModel& model = imported.model;
  if (model.nonfinite.count > 0 && !allow_nonfinite)
    fail(
        "{}: {} weights are NaN, infinite{}, the first in {}; --allow-nonfinite imports them "
        "anyway",
        folder, model.nonfinite.count, dtype.empty() ? "" : " or outside the range of " + dtype,
        model.nonfinite.first);
  store.attribute("/model", "fingerprint", model.fingerprint);
  const std::optional<SavedFocus> focus = files.focus();
  if (focus) {
    // Its base is the model as it was; what lies beside it is named in the store.
    const std::string base = dtype.empty() ? model.fingerprint : fingerprint_of(files);
    write_focus(store, *read_focus(*focus, base, folder), model.fingerprint);
  }
  store.commit();

  const ModelConfig& config = files.config;
  const std::string types = counts_text(imported.types);
  fmt::print("{}: {}, {} layers, hidden size {}, {} parameters in {}, fingerprint {}\n", out,
             config.model_type, config.num_hidden_layers, config.hidden_size, model.parameters,
             types, model.fingerprint);
  if (imported.not_in_blocks > 0)
    fmt::print(
        "notice: {} matrices are float32: their row length is not a multiple of {}'s block size\n",
        imported.not_in_blocks, dtype);
  if (focus) fmt::print("Focus: {} groups, trained with the model\n", focus->config.num_groups);
  if (files.tokenizer)
    fmt::print("tokenizer: {}, vocabulary of {}, fingerprint {}\n", files.tokenizer->kind(),
               files.tokenizer->vocab_size(), files.tokenizer->fingerprint());
  else
    fmt::print("notice: no tokenizer in {}; commands that read text need --tokenizer\n", folder);
  write_json(json,
             {{"store", out},
              {"model_type", config.model_type},
              {"parameters", model.parameters},
              {"stored_as", types},
              {"matrices_not_in_blocks", imported.not_in_blocks},
              {"fingerprint", model.fingerprint},
              {"tokenizer", files.tokenizer ? nlohmann::ordered_json(files.tokenizer->fingerprint())
                                            : nlohmann::ordered_json()}});
  return 0;
}

}  // namespace focus::app
