#include "apps/command.h"
#include "autograd/base/check.h"
#include "data/files/durable_file.h"
#include "data/gguf/gguf.h"
#include "data/tensors/checkpoint_folder.h"
#include "focus/models/model_export.h"

namespace focus::app {
namespace {

struct ExportArguments {
  std::string source, out, gguf, adapter, tokenizer, dtype, json;
  std::uint64_t shard_bytes = ExportOptions{}.shard_bytes;
  bool overwrite = false, with_code = false;
};

/// A folder is replaced as a whole.
void refuse_own_folder(const ExportArguments& o, const std::string& adapter) {
  std::error_code not_there;
  if (std::filesystem::equivalent(o.out, adapter, not_there))
    fail("{}: is the folder of the adapter itself; choose another folder", o.out);
}

/// Whether an adapter holds a LoRA, alone or beside groups.
bool holds_lora(const std::filesystem::path& adapter) {
  if (std::filesystem::is_directory(adapter)) return std::filesystem::exists(adapter / kPeftConfig);
  return is_gguf(adapter) || StoreReader(adapter).has("/lora");
}

int export_adapter(const ExportArguments& o) {
  refuse_own_folder(o, o.source);
  if (holds_lora(o.source))
    fail("{0}: holds a LoRA beside its groups; give the base first, and --adapter {0}", o.source);
  const SavedFocus saved = open_focus(o.source);
  write_adapter_folder(o.out, saved, o.overwrite);
  fmt::print("{}: Focus adapter for {} layers, {} groups, base {}\n", o.out, saved.shape.num_layers,
             saved.config.num_groups, saved.base_fingerprint);
  write_json(
      o.json,
      {{"folder", o.out}, {"kind", "adapter"}, {"base_fingerprint", saved.base_fingerprint}});
  return 0;
}

/// Writes groups with their code and the weights of the model, its LoRA merged into them.
int export_merged(ExportArguments o, LoadedModel& model);

/// A LoRA as the folder that PEFT reads, beside groups that it was trained with.
int export_lora(const ExportArguments& o, LoadedModel& model) {
  if (o.with_code && model.focus() != nullptr) return export_merged(o, model);
  if (o.with_code) fail("--with-code: PEFT and transformers have the code of a LoRA");
  Index parameters = 0;
  model.lora()->visit_parameters(
      [&](const std::string&, const Variable& p) { parameters += p.shape().size(); });
  write_adapters_folder(o.out, model, o.source, o.overwrite);
  fmt::print("{}: LoRA of rank {} for PEFT, {} parameters{}\n", o.out, model.lora()->config().r,
             parameters,
             model.focus() == nullptr
                 ? ""
                 : fmt::format(", and Focus with {} groups", model.focus()->config().num_groups));
  write_json(o.json, {{"folder", o.out}, {"kind", "lora"}, {"focus", model.focus() != nullptr}});
  return 0;
}

int export_model(const ExportArguments& o) {
  if (!o.adapter.empty()) refuse_own_folder(o, o.adapter);
  if (const auto adapter = o.adapter.empty() ? "" : result_of_run(o.adapter);
      !adapter.empty() && (!is_focus_alone(adapter) || holds_lora(adapter))) {
    // With code a LoRA is merged into the weights, which must be float32 then.
    LoadedModel model = load_model(o.source, o.tokenizer, Precision::float32,
                                   o.with_code ? WeightUse::trainable : WeightUse::frozen);
    load_adapter(o.adapter, model);
    if (model.lora() != nullptr) return export_lora(o, model);
  }
  const ModelFiles files = open_model(o.source, o.tokenizer);
  const std::optional<SavedFocus> saved =
      o.adapter.empty() ? files.focus() : open_focus(std::filesystem::path(o.adapter));
  const std::string word = o.dtype.empty() ? "float32" : o.dtype;
  const WeightDtype dtype = weight_dtype(word);
  const ReadModel model = write_model_folder(o.out, files, saved,
                                             {.dtype = word,
                                              .shard_bytes = o.shard_bytes,
                                              .overwrite = o.overwrite,
                                              .with_code = o.with_code});

  fmt::print("{}: {}, {} layers, {} parameters in {}, fingerprint {}\n", o.out,
             files.config.model_type, files.config.num_hidden_layers, model.parameters,
             dtype.published, model.fingerprint);
  if (saved) fmt::print("Focus adapter: {} groups, for these weights\n", saved->config.num_groups);
  if (o.with_code)
    fmt::print(
        "transformers: AutoModelForCausalLM.from_pretrained(\"{}\", trust_remote_code=True)\n",
        o.out);
  if (o.with_code && grouping_kind(saved->config).is_routed &&
      saved->config.tokens().balance == Balance::sequence)
    fmt::print(
        "notice: balance sequence uses later tokens, which the exported code refuses; pass to "
        "from_pretrained focus_attention=\"{}:balance=carried\"\n",
        saved->config.training == Training::summary ? "summary" : "soft");
  if (files.tokenizer && files.tokenizer->files().empty())
    fmt::print("notice: a tokenizer of kind \"{}\" has no files that transformers reads\n",
               files.tokenizer->kind());
  else if (!files.tokenizer)
    fmt::print("notice: no tokenizer in {}, so none is written\n", o.source);
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

int export_merged(ExportArguments o, LoadedModel& model) {
  model.lora()->merge();
  // A hidden folder beside the target, never committed: it goes at the end.
  const DurableFolder beside(o.out, o.overwrite, [](const std::string&) { return true; });
  o.source = (beside.temporary() / "model.h5").string();
  o.adapter.clear();
  write_merged_model(o.source, model);
  return export_model(o);
}

GgufWritten write_gguf_base(const ExportArguments& o, Dtype dtype) {
  return write_gguf_model(o.gguf, open_model(o.source, o.tokenizer), dtype, o.tokenizer.empty());
}

GgufWritten write_gguf_lora(const ExportArguments& o, Dtype dtype) {
  LoadedModel model = load_model(o.source, o.tokenizer);
  load_adapter(o.adapter, model);
  if (model.lora() == nullptr)
    fail("{}: is not a LoRA adapter; llama.cpp does not have Focus attention", o.adapter);
  GgufWritten written = write_gguf_adapter(o.gguf, model, dtype);
  if (model.focus() != nullptr)
    written.notices.emplace_back(
        "the LoRA was trained with groups, which llama.cpp does not have: there it attends "
        "densely");
  return written;
}

int export_gguf(const ExportArguments& o) {
  if (o.with_code) fail("--with-code: writes Python into a folder (--out), not into a GGUF file");
  refuse_existing(o.gguf, o.overwrite);
  const bool adapter = !o.adapter.empty();
  const std::string word = !o.dtype.empty() ? o.dtype : adapter ? "float32" : "f16";
  const Dtype dtype = weight_dtype(word, kGgufBlocks).dtype;
  const GgufWritten written = adapter ? write_gguf_lora(o, dtype) : write_gguf_base(o, dtype);
  fmt::print("{}: {} of {}, {} parameters in {}\n", o.gguf, adapter ? "LoRA" : "model",
             written.architecture, written.parameters, written.type);
  for (const std::string& notice : written.notices) fmt::print("notice: {}\n", notice);
  write_json(o.json, {{"file", o.gguf},
                      {"kind", adapter ? "adapter" : "model"},
                      {"architecture", written.architecture},
                      {"parameters", written.parameters},
                      {"dtype", written.type},
                      {"notices", written.notices}});
  return 0;
}

}  // namespace

int run_export(Arguments arguments) {
  ExportArguments o;
  CLI::App app(
      "Writes a Hugging Face folder that transformers loads (config.json, model.safetensors or "
      "shards with their index, the tokenizer's files). An adapter is written as focus_config.json "
      "and focus_model.safetensors; with --adapter model and adapter go into one folder. With "
      "--gguf writes a file that llama.cpp loads: the model, or with --adapter a LoRA for its "
      "--lora.",
      "focus export");
  app.add_option("source", o.source,
                 "a model or an adapter: a checkpoint file (.h5), a folder or a GGUF file")
      ->required();
  auto* form = app.add_option_group("form", "what to write");
  form->add_option("--out", o.out, "the folder to write")->type_name(kFolder);
  form->add_option("--gguf", o.gguf, "the GGUF file to write");
  form->require_option(1);
  app.add_option("--adapter", o.adapter,
                 "Focus adapter of this model, written into the same folder, or a LoRA, written as "
                 "PEFT's folder, without the model; with --gguf a LoRA (lora.h5 or a PEFT folder), "
                 "written instead of the model");
  app.add_flag("--with-code", o.with_code,
               "also write the Python code with which transformers computes Focus attention "
               "(trust_remote_code)");
  app.add_option("--dtype", o.dtype,
                 "dtype of the weights: float32 (default), bf16 or f16; with --gguf also q8_0, and "
                 "f16 is the default (float32 for a LoRA)")
      ->check(CLI::IsMember({"float32", "bf16", "f16", "float16", "q8_0"}));
  app.add_option("--max-shard-size", o.shard_bytes,
                 "largest weights file, such as 5GB or 500MB (default: 5GB)")
      ->transform(CLI::AsSizeValue(true));
  app.add_option("--tokenizer", o.tokenizer,
                 "tokenizer to use instead of the model's: bytes or a file");
  app.add_option("--json", o.json, kJsonHelp);
  app.add_flag("--overwrite", o.overwrite,
               "replace a folder that holds only files of an export, or a GGUF file");
  parse_arguments(app, arguments);

  if (!o.gguf.empty()) return export_gguf(o);
  if (!is_focus_alone(o.source)) return export_model(o);
  if (!o.adapter.empty())
    fail("{}: is an adapter; give its base model here and this file as --adapter", o.source);
  if (o.with_code)
    fail(
        "{}: is only an adapter, but --with-code writes a model; give its base model here and this "
        "file as --adapter",
        o.source);
  return export_adapter(o);
}

}  // namespace focus::app
