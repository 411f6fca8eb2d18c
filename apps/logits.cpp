#include "apps/command.h"
#include "autograd/base/check.h"
#include "data/files/notice.h"
#include "data/tensors/safetensors.h"

namespace focus::app {
namespace {

using Ids = std::vector<std::int32_t>;

Ids checked_ids(Ids ids, const std::string& text, const LoadedModel& model) {
  if (ids.empty()) ids = model.prompt_ids(text);
  const ModelConfig& config = model.decoder->config();
  if (ids.empty()) fail("the text is empty; give at least one token");
  if (static_cast<Index>(ids.size()) > config.max_position_embeddings)
    fail("{} tokens, but {} has {} positions", ids.size(), model.where,
         config.max_position_embeddings);
  for (const std::int32_t id : ids)
    if (id < 0 || id >= config.vocab_size)
      fail("--ids {}: an id of {} is from 0 to {}", id, model.where, config.vocab_size - 1);
  return ids;
}

/// The tokens' assignments of the last forward pass, or the keys' classes, layer by layer.
void add_groups(const FocusModel& focus, std::vector<std::pair<std::string, Tensor>>& tensors) {
  for (Index i = 0; i < focus.shape().num_layers; ++i) {
    auto [name, groups] = focus.grouping().last_groups(i, focus.last_group_ids()[i]);
    tensors.emplace_back(fmt::format("layers.{}.{}", i, name), std::move(groups));
  }
}

}  // namespace

int run_logits(Arguments arguments) {
  ModelOptions options;
  std::string text, out, json, attention;
  Ids ids;
  CLI::App app(
      "Writes the logits of one sequence as a safetensors file: logits [tokens, vocab_size]; with "
      "a Focus adapter also layers.{i}.assignments [tokens, num_groups], the groups of each token, "
      "or with groups of keys layers.{i}.classes [tokens, key heads], the group number of each "
      "key.",
      "focus logits");
  options.add_to(app);
  CLI::Option_group* input = app.add_option_group("input", "one of");
  input->add_option("--ids", ids, "token ids such as 1,2,3; nothing is added before them")
      ->delimiter(',');
  input->add_option("--text", text, "a text; special tokens are added by --bos");
  input->require_option(1);
  app.add_option("--out", out, "file to write (.safetensors)")->required();
  add_one_attention(app, attention);
  app.add_option("--json", json, kJsonHelp);
  parse_arguments(app, arguments);

  LoadedModel model = options.load();
  const AttentionSpec spec = one_attention(attention, model);
  ids = checked_ids(std::move(ids), text, model);
  const ActiveAttention active(model, spec);
  const NoGrad guard;
  const auto tokens = static_cast<Index>(ids.size());
  const Tensor logits = model.decoder->logits(model.decoder->hidden_states(ids, 1)).value();
  if (const Index bad = count_nonfinite(logits); bad > 0)
    notice("{}: {} of {} logits are NaN or infinite", options.base, bad, logits.size());
  const Index vocab_size = model.decoder->config().vocab_size;
  std::vector<std::pair<std::string, Tensor>> tensors = {
      {"logits", logits.reshape({tokens, vocab_size})}};
  if (const FocusModel* const focus = active.focus()) add_groups(*focus, tensors);
  write_safetensors(out, std::move(tensors));
  fmt::print("{}: {} tokens, {} logits each, attention {}\n", out, tokens, vocab_size,
             active.title());
  write_json(json, {{"model", options.base},
                    {"adapter", options.adapter},
                    {"attention", active.name()},
                    {"routing", active.label().routing_text()},
                    {"ids", ids}});
  return 0;
}

}  // namespace focus::app
