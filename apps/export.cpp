#include "apps/command.h"
#include "autograd/check.h"
#include "focus/train/model_folder.h"

namespace focus {
namespace {

struct Options {
  std::string source, out, adapter, tokenizer, dtype = "float32", json;
  std::uint64_t shard_bytes = ExportOptions{}.shard_bytes;
  bool overwrite = false, with_code = false;
};

int export_adapter(const Options& o) {
  const SavedFocus saved = open_focus(o.source);
  write_adapter_folder(o.out, saved, o.overwrite);
  fmt::print("{}: Focus for {} layers, {} groups, base {}\n", o.out, saved.shape.num_layers,
             saved.config.num_groups, saved.base_fingerprint);
  write_json(
      o.json,
      {{"folder", o.out}, {"kind", "adapter"}, {"base_fingerprint", saved.base_fingerprint}});
  return 0;
}

int export_model(const Options& o) {
  const ModelFiles files = open_model(o.source, o.tokenizer);
  std::optional<SavedFocus> saved = files.focus;
  if (!o.adapter.empty()) saved = open_focus(o.adapter);
  const ExportDtype& dtype = export_dtype(o.dtype);
  const StreamedModel model = write_model_folder(o.out, files, saved,
                                                 {.dtype = o.dtype,
                                                  .shard_bytes = o.shard_bytes,
                                                  .overwrite = o.overwrite,
                                                  .with_code = o.with_code});

  fmt::print("{}: {}, {} layers, {} parameters in {}, fingerprint {}\n", o.out,
             files.config.model_type, files.config.num_hidden_layers, model.parameters,
             dtype.published, model.fingerprint);
  if (saved) fmt::print("Focus: {} groups, for these weights\n", saved->config.num_groups);
  if (o.with_code)
    fmt::print(
        "transformers: AutoModelForCausalLM.from_pretrained(\"{}\", trust_remote_code=True)\n",
        o.out);
  if (o.with_code && saved->config.routing == RoutingSpace::hidden &&
      saved->config.balance == Balance::sequence)
    fmt::print(
        "notice: balance sequence sees later tokens, which the code refuses; from_pretrained takes "
        "focus_attention=\"{}:balance=carried\"\n",
        saved->config.training == Training::summary ? "summary" : "soft");
  if (files.tokenizer && files.tokenizer->files().empty())
    fmt::print("notice: a tokenizer of kind \"{}\" has no files that transformers reads\n",
               files.tokenizer->kind());
  else if (!files.tokenizer)
    fmt::print("notice: no tokenizer in {}, so none here\n", o.source);
  write_json(o.json, {{"folder", o.out},
                      {"kind", "model"},
                      {"model_type", files.config.model_type},
                      {"parameters", model.parameters},
                      {"dtype", dtype.published},
                      {"focus", saved.has_value()},
                      {"with_code", o.with_code},
                      {"fingerprint", model.fingerprint}});
  return 0;
}

}  // namespace

int run_export(Arguments arguments) {
  Options o;
  CLI::App app(
      "Writes a Hugging Face folder that transformers loads (config.json, model.safetensors or "
      "shards with their index, the tokenizer's files); of an adapter its exchange form: "
      "focus_config.json and focus_model.safetensors. With --adapter both go into one folder.",
      "focus export");
  app.add_option("source", o.source, "a model or an adapter: a store or a folder")->required();
  app.add_option("--out", o.out, "the folder to write")->required();
  app.add_option("--adapter", o.adapter, "a Focus for this model, put beside it");
  app.add_flag("--with-code", o.with_code,
               "put the Python beside it by which transformers computes the Focus's attention "
               "(trust_remote_code)");
  app.add_option("--dtype", o.dtype, "of the model's weights: float32, bf16 or f16")
      ->check(CLI::IsMember({"float32", "bf16", "f16"}))
      ->capture_default_str();
  app.add_option("--max-shard-size", o.shard_bytes,
                 "bytes of one weights file, as 5GB or 500MB (default: 5GB)")
      ->transform(CLI::AsSizeValue(true));
  app.add_option("--tokenizer", o.tokenizer,
                 "bytes, or a tokenizer's file, instead of the model's");
  app.add_option("--json", o.json, "write the figures to this file too");
  app.add_flag("--overwrite", o.overwrite,
               "replace a folder that holds nothing but files of an exported one");
  parse_arguments(app, arguments);

  if (!is_focus_alone(o.source)) return export_model(o);
  if (!o.adapter.empty())
    fail("{}: is an adapter itself; name its base model here, and this file as --adapter",
         o.source);
  if (o.with_code)
    fail(
        "{}: is an adapter alone, and --with-code writes a model; name its base model here, and "
        "this "
        "file as --adapter",
        o.source);
  return export_adapter(o);
}

}  // namespace focus
