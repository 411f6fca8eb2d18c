#include <fmt/ranges.h>

#include "apps/command.h"
#include "autograd/check.h"

namespace focus {

namespace {

/// Puts the weights into a store, under their published names, in the types that they are stored
/// in. A GGUF file's lie otherwise than a store's: what was widened from blocks is kept as float32.
ReadModel import_weights(const ModelFiles& files, StoreWriter& store) {
  Dtype dtype = Dtype::f32;
  std::vector<std::byte> bytes;
  Publisher publisher(files.config, [&](const std::string& name, const Tensor& tensor) {
    pack(tensor.span(), dtype, bytes);
    const auto dims = tensor.shape().dims();
    store.tensor_raw(store_path("/model", name), {dims.begin(), dims.end()}, dtype, bytes);
  });
  const bool gguf = files.weights->naming() == TensorNaming::gguf;
  return read_model(files, [&](const StoredParameter& p) {
    if (gguf) {
      Tensor numbers(p.shape);
      p.read(numbers);
      dtype = in_blocks(p.info->dtype) ? Dtype::f32 : p.info->dtype;
      publisher.add(p.name, numbers);
    } else if (p.completes) {
      store.tensor_raw(store_path("/model", p.published), p.info->shape, p.info->dtype,
                       p.tensor.bytes);
    }
  });
}

}  // namespace

int run_import(Arguments arguments) {
  std::string folder, out, tokenizer, json;
  bool overwrite = false, allow_nonfinite = false;
  CLI::App app(
      "Imports a Hugging Face folder (config.json, model.safetensors or its shards, tokenizer) or "
      "a GGUF file into a store, tensor by tensor, in the types that it has them in; what a GGUF "
      "file has in blocks becomes float32.",
      "focus import");
  app.add_option("folder", folder, "the folder, or the GGUF file")->required();
  app.add_option("--out", out, "the store to write (.h5)")->required();
  app.add_option("--tokenizer", tokenizer, "bytes, or a tokenizer's file, instead of the folder's");
  app.add_option("--json", json, "write the figures to this file too");
  app.add_flag("--overwrite", overwrite, "replace an existing store");
  app.add_flag("--allow-nonfinite", allow_nonfinite, "import NaN and infinite weights");
  parse_arguments(app, arguments);

  refuse_existing(out, overwrite);
  const ModelFiles files = open_model(folder, tokenizer);
  StoreWriter store(out, "model");
  write_model_head(store, files.config, files.tokenizer.get(), files.side_files);
  const ReadModel model = import_weights(files, store);
  if (model.nonfinite > 0 && !allow_nonfinite)
    fail(
        "{}: {} weights are NaN or infinite, the first in {}; --allow-nonfinite imports them all "
        "the same",
        folder, model.nonfinite, model.first_nonfinite);
  store.attribute("/model", "fingerprint", model.fingerprint);
  if (files.focus)
    write_focus(store, *read_focus(*files.focus, model.fingerprint, folder), model.fingerprint);
  store.commit();

  const ModelConfig& config = files.config;
  const std::string types = fmt::format("{}", fmt::join(model.types, ", "));
  fmt::print("{}: {}, {} layers, width {}, {} parameters in {}, fingerprint {}\n", out,
             config.model_type, config.num_hidden_layers, config.hidden_size, model.parameters,
             types, model.fingerprint);
  if (files.focus)
    fmt::print("Focus: {} groups, trained with the model\n", files.focus->config.num_groups);
  if (files.tokenizer)
    fmt::print("tokenizer: {}, {} ids, fingerprint {}\n", files.tokenizer->kind(),
               files.tokenizer->vocab_size(), files.tokenizer->fingerprint());
  else
    fmt::print("notice: no tokenizer in {}; name one with --tokenizer where text is read\n",
               folder);
  write_json(json,
             {{"store", out},
              {"model_type", config.model_type},
              {"parameters", model.parameters},
              {"stored_as", types},
              {"fingerprint", model.fingerprint},
              {"tokenizer", files.tokenizer ? nlohmann::ordered_json(files.tokenizer->fingerprint())
                                            : nlohmann::ordered_json()}});
  return 0;
}

}  // namespace focus
