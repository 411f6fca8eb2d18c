#include "data/chat/chat_template.h"
#include "focus/c_interface/interface.h"
#include "focus/evaluation/scores/pair_scores.h"

namespace focus::c_interface {
namespace {

/// What focus_model_open() reads.
struct OpenSettings {
  std::vector<std::string> adapters = {};
  std::string tokenizer = {};
  Bos bos = Bos::automatic;
  std::optional<Precision> precision = {};

  void visit(auto&& f) {
    f("adapters", adapters, "");
    f("tokenizer", tokenizer, "");
    f("bos", bos, "");
    f("precision", precision, "");
  }
};

/// Ids that the model can compute with.
std::vector<std::int32_t> computable(const OpenModel& open, focus_ids given) {
  std::vector<std::int32_t> ids = ids_of(given);
  if (ids.empty()) fail("ids: expected at least one");
  open.model.require_ids(ids, "ids");
  require_positions(open.model, std::ssize(ids), false, "ids");
  return ids;
}

/// The last norm's output of the tokens from `first` on [tokens - first, hidden_size].
Tensor hidden_from(OpenModel& open, focus_ids given, std::size_t first) {
  const std::vector<std::int32_t> ids = computable(open, given);
  if (first >= ids.size()) fail("first: expected a token below {}, got {}", ids.size(), first);
  const ActiveAttention active(open.model, open.spec());
  const Tensor all = open.model.decoder->hidden_states(ids, 1).value();
  if (first == 0) return all.reshape({all.rows(), all.cols()});
  return rows_of(all, static_cast<Index>(first), std::ssize(ids) - static_cast<Index>(first));
}

Json adapter_json(const Adapter& adapter, const LoadedModel& model) {
  Json json = {{"kind", adapter.kind()}, {"name", adapter.name()}, {"causal", adapter.causal()}};
  if (&adapter == model.focus()) {
    FocusConfig config = model.focus()->config();
    json["settings"] = settings_json(config_fields(config));
    json["fitted_context"] = fitted_context(model);
  } else if (&adapter == model.lora()) {
    LoraConfig config = model.lora()->config();
    json["settings"] = settings_json(config_fields(config));
  }
  return json;
}

Json info_json(const OpenModel& open) {
  const LoadedModel& model = open.model;
  const ModelConfig& c = model.decoder->config();
  Json adapters = Json::array();
  for (const auto& adapter : model.adapters) adapters.push_back(adapter_json(*adapter, model));
  return {{"where", model.where},
          {"model_type", c.model_type},
          {"parameters", count_parameters(*model.decoder)},
          {"vocab_size", c.vocab_size},
          {"hidden_size", c.hidden_size},
          {"num_hidden_layers", c.num_hidden_layers},
          {"num_attention_heads", c.num_attention_heads},
          {"num_key_value_heads", c.num_key_value_heads},
          {"head_dim", c.head_dim},
          {"max_position_embeddings", c.max_position_embeddings},
          {"precision", name_of(model.decoder->head_weight().precision())},
          {"tokenizer", model.tokenizer ? Json(model.tokenizer->kind()) : Json()},
          {"bos_token_id", model.document_start() ? Json(*model.document_start()) : Json()},
          {"eos_token_ids", model.end_ids()},
          {"chat_template", has_chat_template(model.chat_files(), model.chat_where())},
          {"adapters", adapters},
          {"attention", open.attention}};
}

void detach(OpenModel& open) {
  LoadedModel& model = open.model;
  open.attention.clear();
  if (!model.files || model.files->adapters.empty()) {
    while (!model.adapters.empty()) model.adapters.pop_back();
    model.adapter_chat.reset();
  } else {  // what it was trained with was replaced, or is below what was added
    model = focus::open(model.where, open.options);
  }
}

}  // namespace
}  // namespace focus::c_interface

using namespace focus;               // NOLINT: what follows is C
using namespace focus::c_interface;  // NOLINT

focus_status focus_model_open(const char* path, const char* settings, focus_model** model) {
  return call([&] {
    require(path, "path");
    require(model, "model");
    OpenSettings read;
    read_settings(settings, "settings", read);
    auto open = std::make_shared<OpenModel>();
    open->options = {.tokenizer = read.tokenizer, .bos = read.bos, .precision = read.precision};
    OpenOptions options = open->options;
    options.adapters = read.adapters;
    open->model = focus::open(path, options);
    *model = static_cast<focus_model*>(models().add(std::move(open)));
  });
}

focus_status focus_model_close(focus_model* model) {
  return call([&] {
    const std::shared_ptr<OpenModel> open = models().find(model);
    const std::unique_lock lock = open->wait();
    models().find(model, true);
  });
}

focus_status focus_model_cancel(focus_model* model) {
  return call([&] { models().find(model)->cancelled = true; });
}

focus_status focus_model_info(focus_model* model, focus_value** json) {
  return make_on(model, json, info_json);
}

focus_status focus_model_attach(focus_model* model, const char* path) {
  return call_on(model, [&](OpenModel& open) {
    require(path, "path");
    load_adapters({path}, open.model);
    open.attention.clear();
  });
}

focus_status focus_model_detach(focus_model* model) {
  return call_on(model, [&](OpenModel& open) { detach(open); });
}

focus_status focus_model_set_attention(focus_model* model, const char* attention) {
  return call_on(model, [&](OpenModel& open) {
    const std::string word = text_of(attention);
    if (!word.empty()) resolve_attention(parse_attention(word), open.model, "attention");
    open.attention = word;
  });
}

focus_status focus_model_encode(focus_model* model, const char* text, size_t bytes, int32_t special,
                                focus_value** ids) {
  return make_on(model, ids, [&](OpenModel& open) {
    if (bytes > 0) require(text, "text");
    const std::string_view given(bytes > 0 ? text : "", bytes);
    return special != 0 ? open.model.prompt_ids(given)
                        : open.model.require_tokenizer().encode(given);
  });
}

focus_status focus_model_decode(focus_model* model, focus_ids ids, focus_value** text) {
  return make_on(model, text, [&](OpenModel& open) {
    return open.model.require_tokenizer().decode(ids_of(ids));
  });
}

focus_status focus_model_chat(focus_model* model, const char* messages, const char* variables,
                              focus_value** text) {
  return make_on(model, text, [&](OpenModel& open) {
    require(messages, "messages");
    ChatVariables others;
    others.others = Json(read_object(variables, "variables"));
    return chat_prompt(open.model, parse_messages(messages, "messages"), std::move(others));
  });
}

focus_status focus_model_logits(focus_model* model, focus_ids ids, size_t first,
                                focus_value** logits) {
  return make_on(model, logits, [&](OpenModel& open) {
    return open.model.decoder->logits(hidden_from(open, ids, first)).value();
  });
}

focus_status focus_model_hidden_states(focus_model* model, focus_ids ids, size_t first,
                                       focus_value** hidden) {
  return make_on(model, hidden, [&](OpenModel& open) { return hidden_from(open, ids, first); });
}

focus_status focus_model_log_probs(focus_model* model, focus_ids ids, focus_value** log_probs) {
  return make_on(model, log_probs, [&](OpenModel& open) {
    const std::vector<std::int32_t> all = computable(open, ids);
    if (all.size() < 2) fail("ids: expected at least two, of which the second is predicted");
    const ActiveAttention active(open.model, open.spec());
    const TokenPair pair = {{all.begin(), all.begin() + 1}, {all.begin() + 1, all.end()}};
    return score_pairs(*open.model.decoder, std::span(&pair, 1), {.causal = active.causal()})
        .front()
        .log_probs;
  });
}
