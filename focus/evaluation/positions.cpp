#include "focus/evaluation/positions.h"

#include "autograd/base/check.h"

namespace focus {

void require_positions(const LoadedModel& model, Index tokens, bool beyond,
                       const std::string& what) {
  const ModelConfig& config = model.decoder->config();
  const Index positions = config.max_position_embeddings;
  const char* way_out = config.learned_positions ? (beyond ? ", which are a learned table" : "")
                                                 : "; --beyond-positions allows it";
  check(tokens <= positions || (beyond && !config.learned_positions),
        "{} {} is longer than the {} positions of {}{}", what, tokens, positions, model.where,
        way_out);
}

std::string positions_notice(const LoadedModel& model, Index tokens) {
  const Index positions = model.decoder->config().max_position_embeddings;
  if (tokens <= positions) return "";
  return fmt::format(
      "{} tokens exceed the {} positions that {} was trained with: its rotary angles continue, but "
      "the model was not trained on them",
      tokens, positions, model.where);
}

std::string fit_notice(const LoadedModel& model, Index tokens) {
  FocusModel* const focus = model.focus();
  const std::int64_t fitted = focus == nullptr ? 0 : focus->grouping().fitted_context();
  if (fitted == 0 || tokens <= fitted) return "";
  return fmt::format(
      "the groups were fitted on windows of {} tokens; in {} they are uneven, cost more and lose "
      "more: fit "
      "them on windows of that length (focus fit --context {})",
      fitted, tokens, tokens);
}

}  // namespace focus
