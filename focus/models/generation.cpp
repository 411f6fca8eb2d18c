#include "focus/models/generation.h"

namespace focus {

GenerationModel generation_model(const LoadedModel& model, const AttentionSpec& mode,
                                 std::optional<CacheDtype> cache) {
  return {*model.decoder, model.focus(), model.require_tokenizer(), model.end_ids(), mode, cache};
}

Generated generate(const GenerationModel& model, const std::vector<std::int32_t>& prompt,
                   const GenerationOptions& options, const OnText& on_text) {
  OnToken on_token;
  if (on_text) on_token = [&](const std::string& text, const Generated&) { return on_text(text); };
  Scheduler scheduler(model, {});
  Scheduler::Ticket ticket = *scheduler.submit(prompt, options, on_token);
  while (scheduler.step()) {
  }
  return ticket.result.get();
}

}  // namespace focus
