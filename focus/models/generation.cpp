#include "focus/models/generation.h"

#include "autograd/base/check.h"
#include "autograd/simd/bf16_kernels.h"
#include "autograd/simd/block_kernels.h"
#include "focus/version.h"

namespace focus {
namespace {

/// All settings of an attention.
std::string attention_text(const AttentionSpec& wanted, FocusModel* focus) {
  AttentionSpec spec = focus == nullptr ? wanted : focus->runnable_mode(wanted);
  std::string text = spec.word();
  for (const ConfigField& field : config_fields(spec))
    text += fmt::format(":{}={}", field.key, field.text());
  for (const auto* by_layer : {&spec.m_by_layer, &spec.w_by_layer})
    if (!by_layer->empty()) text += ":" + value_text(*by_layer);
  return text;
}

/// Settings, parameters and state.
std::string adapter_text(Adapter& adapter) {
  Checksum checksum;
  const auto take = [&](std::string_view name, const Tensor& tensor) {
    checksum.update(std::string(name));
    checksum.update(std::as_bytes(tensor.span()));
  };
  adapter.visit_parameters([&](const std::string& name, Variable& p) { take(name, p.value()); });
  if (auto* const lora = dynamic_cast<LoraModel*>(&adapter))
    checksum.update(dump_config(lora->config()));
  if (auto* const focus = dynamic_cast<FocusModel*>(&adapter)) {
    checksum.update(dump_config(focus->config()));
    for (Index layer = 0; layer < focus->shape().num_layers; ++layer)
      focus->grouping().visit_tensors(layer, take);
  }
  return fmt::format(" {} {}", adapter.kind(), checksum.hex());
}

}  // namespace

std::string cache_identity(const LoadedModel& model, const GenerationModel& of) {
  if (!of.cache)
    fail("{}: prompts are saved only where there is a cache: with dense or Focus attention",
         model.where);
  Checksum stored;
  if (model.files)
    for (const TensorInfo& tensor : model.files->weights->tensors())
      stored.update(fmt::format("{} {}\n", tensor.name, name_of(tensor.dtype)));
  std::string drafts = " none", adapters;
  if (of.drafting && of.drafting->attention)
    drafts = " " + attention_text(*of.drafting->attention, of.focus);
  const bool grouped = of.mode.kind != AttentionKind::dense || drafts != " none";
  for (const auto& adapter : model.adapters)
    if (grouped || adapter.get() != model.focus()) adapters += adapter_text(*adapter);
  const simd::Bf16Kernels* const bf16 = simd::fast_bf16_kernels();
  return fmt::format(
      "version {}\nmodel {} of {} positions\nweights stored as {}\nprecision {}\nadapters{}\n"
      "attention {}\ncache-type {}\ndrafts{}\nkernels {} {} {} of {} bytes\n",
      FOCUS_VERSION, model.fingerprint(), model.decoder->config().max_position_embeddings,
      stored.hex(), name_of(of.decoder.head_weight().precision()),
      adapters.empty() ? " none" : adapters, attention_text(of.mode, of.focus), name_of(*of.cache),
      drafts, simd::kernels().name, simd::block_kernels().name, bf16 ? bf16->name : "none",
      sizeof(Real));
}

GenerationModel generation_model(const LoadedModel& model, const AttentionSpec& mode,
                                 std::optional<CacheDtype> cache) {
  return {*model.decoder, model.focus(), model.require_tokenizer(), model.end_ids(), mode, cache};
}

Generated generate(const GenerationModel& model, const std::vector<std::int32_t>& prompt,
                   const GenerationOptions& options, const OnText& on_text) {
  OnToken on_token;
  if (on_text) on_token = [&](const std::string& text, const Generated&) { return on_text(text); };
  Scheduler scheduler(model, {.undo = model.files != nullptr ? CacheFiles::kUndo : 0});
  Scheduler::Ticket ticket = *scheduler.submit(prompt, options, on_token);
  while (scheduler.step()) {
  }
  return ticket.result.get();
}

}  // namespace focus
