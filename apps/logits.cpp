#include "apps/command.h"
#include "autograd/check.h"
#include "data/files/safetensors.h"
#include "data/text/text.h"

namespace focus {
namespace {

using Ids = std::vector<std::int32_t>;

struct Options {
  std::string base, adapter, tokenizer, text, text_file, out, json;
  std::string attention = "auto", routing = "auto";
  std::vector<std::int32_t> ids;
  int hard_k = 1, threads = 0;
};

AttentionMode mode_of(const Options& o, const FocusModel* focus) {
  if (o.attention == "dense" || (o.attention == "auto" && focus == nullptr))
    return {.kind = AttentionMode::Kind::dense};
  if (focus == nullptr)
    fail("{}: {} attention needs a Focus: name one with --adapter", o.base, o.attention);
  AttentionMode mode = focus->mode;
  mode.kind = o.attention == "hard" ? AttentionMode::Kind::hard : AttentionMode::Kind::soft;
  mode.top_k = o.hard_k;
  if (o.hard_k > focus->config().num_groups)
    fail("--hard-k {} is more than the {} groups", o.hard_k, focus->config().num_groups);
  const auto names = enum_names(mode.balance);
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == o.routing) mode.balance = static_cast<Balance>(i);
  return mode;
}

Ids ids_of(const Options& o, const LoadedModel& model) {
  if (!o.ids.empty()) return o.ids;
  const std::string text = o.text_file.empty() ? o.text : read_text_file(o.text_file);
  Ids ids = model.require_tokenizer().encode(text);
  if (const auto start = model.document_start()) ids.insert(ids.begin(), *start);
  return ids;
}

}  // namespace

int run_logits(Arguments arguments) {
  Options o;
  CLI::App app(
      "The logits of one sequence as a safetensors file: logits [tokens, vocab_size], and where "
      "Focus is on, layers.{i}.assignments [tokens, num_groups]: each token's groups.",
      "focus logits");
  app.add_option("base", o.base, "the model: a store or a Hugging Face folder")->required();
  app.add_option("--adapter", o.adapter, "the Focus adapter (focus.h5, or an exported folder)");
  app.add_option("--tokenizer", o.tokenizer, "instead of the model's own");
  CLI::Option_group* input = app.add_option_group("input", "one of");
  input->add_option("--ids", o.ids, "token ids, as 1,2,3; nothing is put before them")
      ->delimiter(',');
  input->add_option("--text", o.text, "a text; the id that starts a document is put before it");
  input->add_option("--text-file", o.text_file, "a file that holds it (.txt, .xz)");
  input->require_option(1);
  app.add_option("--out", o.out, "the file to write (.safetensors)")->required();
  app.add_option("--attention", o.attention, "auto: soft where there is a Focus, else dense")
      ->check(CLI::IsMember({"auto", "dense", "soft", "hard"}));
  app.add_option("--hard-k", o.hard_k, "groups a token keeps in hard attention")
      ->check(CLI::Range(0, 64))
      ->capture_default_str();
  app.add_option("--routing", o.routing,
                 "carried, sequence (not causal), none; auto: as the adapter is configured")
      ->check(CLI::IsMember({"auto", "carried", "sequence", "none"}));
  app.add_option("--threads", o.threads, "threads");
  app.add_option("--json", o.json, "write the ids and settings to this file too");
  parse_arguments(app, arguments);

  set_threads(o.threads);
  LoadedModel model = load_model(o.base, o.tokenizer);
  if (!o.adapter.empty()) load_adapter(o.adapter, model);
  const AttentionMode mode = mode_of(o, model.focus.get());
  if (model.focus) model.focus->mode = mode;
  const Ids ids = ids_of(o, model);
  const ModelConfig& config = model.decoder->config();
  if (ids.empty()) fail("the text is empty; give at least one token");
  if (static_cast<Index>(ids.size()) > config.max_position_embeddings)
    fail("{} tokens, but {} has {} positions", ids.size(), o.base, config.max_position_embeddings);
  for (const std::int32_t id : ids)
    if (id < 0 || id >= config.vocab_size)
      fail("--ids {}: an id of {} is from 0 to {}", id, o.base, config.vocab_size - 1);

  const NoGrad guard;
  const auto tokens = static_cast<Index>(ids.size());
  const Tensor logits = model.decoder->logits(model.decoder->hidden_states(ids, 1)).value();
  std::vector<std::pair<std::string, Tensor>> tensors = {
      {"logits", logits.reshape({tokens, config.vocab_size})}};
  if (mode.kind != AttentionMode::Kind::dense) {
    const auto& routings = model.focus->last_routings();
    for (std::size_t i = 0; i < routings.size(); ++i)
      tensors.emplace_back(
          fmt::format("layers.{}.assignments", i),
          routings[i].assignments.value().reshape({tokens, model.focus->config().num_groups}));
  }
  write_safetensors(o.out, std::move(tensors));
  const std::string routing = EvalRow{.mode = mode}.routing();
  fmt::print("{}: {} tokens, {} logits each, attention {}{}\n", o.out, tokens, config.vocab_size,
             mode.name(), routing == "-" ? "" : ", " + routing);
  write_json(o.json, {{"model", o.base},
                      {"adapter", o.adapter},
                      {"attention", mode.name()},
                      {"routing", routing},
                      {"ids", ids}});
  return 0;
}

}  // namespace focus
