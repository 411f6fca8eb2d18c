#include "apps/api.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <random>

#include "autograd/base/check.h"
#include "data/files/json_reader.h"
#include "data/files/utf8.h"
#include "focus/training/tasks.h"

namespace focus::app {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kRequest = "request";
constexpr std::int64_t kMostTokens = 1 << 27, kMostTop = 20, kMostStops = 16;
constexpr Index kMostTokenBytes = 256;  // as a mean of a text
constexpr Index kDefaultTokens = 16;    // of a completion, as OpenAI has it

constexpr std::string_view kFields[] = {
    "model", "max_tokens", "stop",        "n",     "logprobs", "stream", "stream_options",
    "user",  "seed",       "temperature", "top_p", "min_p",    "top_k",  "logit_bias"};
constexpr std::string_view kPenalties[] = {"frequency_penalty", "presence_penalty",
                                           "repetition_penalty"};
constexpr std::string_view kCompletionFields[] = {"prompt", "echo", "best_of", "suffix"};
constexpr std::string_view kChatFields[] = {
    "messages",        "top_logprobs", "max_completion_tokens", "chat_template_kwargs",
    "response_format", "tools"};

/// Fields that are read by nothing here: with another value they would change the answer.
const Json& neutral_values() {
  static const Json values = Json::parse(R"({
    "n": 1, "best_of": 1, "suffix": "", "frequency_penalty": 0, "presence_penalty": 0,
    "tools": [], "response_format": {"type": "text"}})");
  return values;
}

void require_known(const JsonView& request, bool chat) {
  for (const auto& [name, value] : request.object().items()) {
    const auto in = [&, &key = name](const auto& names) {
      return std::ranges::count(names, std::string_view(key)) > 0;
    };
    if (!in(kFields) && !in(kPenalties) && !(chat ? in(kChatFields) : in(kCompletionFields)))
      fail("{}: unknown field {}", kRequest, json_quoted(name));
    const auto neutral = neutral_values().find(name);
    if (value.is_null() || neutral == neutral_values().end()) continue;
    if (value != nlohmann::json(*neutral))
      fail("{}.{}: only {} is supported, found {}", kRequest, name, neutral->dump(),
           shown_json(value));
  }
}

/// Calls f with a field that is there.
void with(const JsonView& request, const char* name, auto&& f) {
  if (const JsonView field = request.get(name); !field.is_null()) f(field);
}

void read_sampling(const JsonView& request, const LoadedModel& model, GenerationOptions& options) {
  SamplingOptions& sampling = options.sampling;
  GenerationConfig::Said said;
  const auto number = [&](const char* name, double& to, bool& is_said) {
    with(request, name, [&](const JsonView& field) {
      to = field.number();
      is_said = true;
    });
  };
  number("temperature", sampling.temperature, said.temperature);
  number("top_p", sampling.top_p, said.top_p);
  number("min_p", sampling.min_p, said.min_p);
  number("repetition_penalty", sampling.repetition_penalty, said.repetition_penalty);
  with(request, "top_k", [&](const JsonView& field) {
    sampling.top_k = field.integer(kMostTokens);
    said.top_k = true;
  });
  if (model.files) model.files->generation.apply(said, sampling);
  sampling.validate();
  options.seed = std::random_device()();
  with(request, "seed", [&](const JsonView& field) {
    options.seed =
        static_cast<std::uint64_t>(field.integer(std::numeric_limits<std::int64_t>::max()));
  });
  with(request, "logit_bias", [&](const JsonView& field) {
    for (const auto& [name, value] : field.object().items()) {
      const JsonView bias(value, fmt::format("{}.{}", field.where(), shown(name)));
      options.logit_bias.push_back(logit_bias(name, bias.number(), model, bias.where()));
    }
  });
}

void read_stops(const JsonView& request, const LoadedModel& model, GenerationOptions& options) {
  with(request, "stop", [&](const JsonView& field) {
    if (field.json().is_string()) {
      options.until = {field.string()};
    } else {
      if (std::ssize(field.json()) > kMostStops && field.json().is_array())
        fail("{}: at most {} texts are supported", field.where(), kMostStops);
      for (std::size_t i = 0; i < field.array_size(); ++i)
        options.until.push_back(field.item(i).string());
    }
    if (std::ranges::find(options.until, std::string()) != options.until.end())
      fail("{}: an empty text would end every answer", field.where());
  });
  if (!model.files) return;
  const auto& own = model.files->generation.stop_strings;
  options.until.insert(options.until.end(), own.begin(), own.end());
}

/// Log-probabilities: a number in a completion, true and top_logprobs in a chat.
void read_logprobs(const JsonView& request, bool chat, GenerationOptions& options) {
  if (!chat) {
    with(request, "logprobs",
         [&](const JsonView& field) { options.top_logprobs = field.integer(kMostTop + 1); });
    return;
  }
  if (request.flag("logprobs")) options.top_logprobs = 0;
  with(request, "top_logprobs", [&](const JsonView& field) {
    if (!options.top_logprobs) fail("{}: it needs \"logprobs\": true", field.where());
    options.top_logprobs = field.integer(kMostTop + 1);
  });
}

/// A text that has more bytes than so many tokens can be is refused before it becomes tokens, which
/// would take long.
const std::string& require_short(const std::string& text, const LoadedModel& model,
                                 const std::string& where) {
  const Index positions = model.decoder->config().max_position_embeddings;
  if (std::ssize(text) > positions * kMostTokenBytes)
    throw ApiError(400, "context_length_exceeded",
                   fmt::format("{}: the text has {} bytes, but the model takes {} tokens; "
                               "shorten it",
                               where, text.size(), positions));
  return text;
}

std::vector<std::int32_t> read_ids(const JsonView& list, const LoadedModel& model) {
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < list.array_size(); ++i)
    ids.push_back(
        static_cast<std::int32_t>(list.item(i).integer(model.decoder->config().vocab_size)));
  return ids;
}

/// A text, ids, or a list of either.
std::vector<std::vector<std::int32_t>> read_prompts(const JsonView& prompt,
                                                    const LoadedModel& model) {
  const nlohmann::json& json = prompt.json();
  const auto ids_of = [&](const JsonView& text) {
    return model.prompt_ids(require_short(text.string(), model, text.where()), text.where());
  };
  if (json.is_string()) return {ids_of(prompt)};
  if (prompt.array_size() > 0 && json[0].is_number()) return {read_ids(prompt, model)};
  std::vector<std::vector<std::int32_t>> all;
  for (std::size_t i = 0; i < prompt.array_size(); ++i) {
    const JsonView one = prompt.item(i);
    all.push_back(one.json().is_string() ? ids_of(one) : read_ids(one, model));
  }
  return all;
}

/// Messages as a chat template takes them: a content of parts becomes their text.
Json read_messages(const JsonView& list) {
  Json messages = Json::array();
  if (list.array_size() == 0) fail("{}: expected at least one message", list.where());
  for (std::size_t i = 0; i < list.array_size(); ++i) {
    const JsonView message = list.item(i), content = message.get("content");
    message.at("role").string();
    Json& copy = messages.emplace_back(message.json());
    if (content.json().is_array()) {
      std::string text;
      for (std::size_t part = 0; part < content.array_size(); ++part) {
        const std::array<std::string_view, 1> known = {"text"};
        content.item(part).at("type").choice(known);
        text += content.item(part).at("text").string();
      }
      copy["content"] = text;
    } else if (!content.is_null()) {
      content.string();
    }
  }
  return messages;
}

std::vector<std::int32_t> chat_prompt_ids(const JsonView& request, const LoadedModel& model) {
  ChatVariables variables;
  with(request, "chat_template_kwargs",
       [&](const JsonView& field) { variables.others = Json(field.object()); });
  const JsonView messages = request.at("messages");
  const std::string prompt = chat_prompt(model, read_messages(messages), std::move(variables));
  return chat_ids(model, require_short(prompt, model, messages.where()));
}

void require_room(const ApiRequest& request, const LoadedModel& model) {
  const Index positions = model.decoder->config().max_position_embeddings;
  if (request.prompts.empty()) fail("{}.prompt: the list is empty", kRequest);
  for (const auto& prompt : request.prompts) {
    if (prompt.empty()) fail("{}: a prompt has no tokens; give it some text", kRequest);
    if (std::ssize(prompt) > positions)
      throw ApiError(400, "context_length_exceeded",
                     fmt::format("{}: a prompt has {} tokens, but the model takes {}; shorten it",
                                 kRequest, prompt.size(), positions));
  }
}

ApiRequest read_fields(bool chat, std::string_view body, const LoadedModel& model) {
  const nlohmann::json json = parse_strict_json(body, kRequest);
  const JsonView request(json, kRequest);
  require_known(request, chat);
  for (const char* name : {"model", "user"})
    with(request, name, [](const JsonView& f) { f.string(); });
  ApiRequest read{.chat = chat, .prompts = {}, .options = {}};
  read_sampling(request, model, read.options);
  read_stops(request, model, read.options);
  read_logprobs(request, chat, read.options);
  read.options.max_new_tokens =
      chat ? model.decoder->config().max_position_embeddings + 1 : kDefaultTokens;
  for (const char* name : {"max_tokens", "max_completion_tokens"})
    with(request, name,
         [&](const JsonView& f) { read.options.max_new_tokens = f.integer(kMostTokens); });
  read.stream = request.flag("stream");
  with(request, "stream_options",
       [&](const JsonView& field) { read.stream_usage = field.flag("include_usage"); });
  if (chat) {
    read.prompts = {chat_prompt_ids(request, model)};
  } else {
    read.echo = request.flag("echo");
    read.options.prompt_logprobs = read.echo && read.options.top_logprobs;
    read.prompts = read_prompts(request.at("prompt"), model);
  }
  require_room(read, model);
  if (read.stream && read.prompts.size() > 1)
    fail("{}.stream: expected one prompt, found {}", kRequest, read.prompts.size());
  return read;
}

/// What an id adds to a text that `before` ends.
std::string text_of(const Tokenizer& tokenizer, std::optional<std::int32_t> before,
                    std::int32_t id) {
  if (id >= tokenizer.vocab_size()) return {};
  const auto decode = [&](const std::vector<std::int32_t>& ids) {
    return replace_invalid_utf8(tokenizer.decode(ids));
  };
  if (before && *before < tokenizer.vocab_size()) {
    const std::string first = decode({*before}), both = decode({*before, id});
    if (both.starts_with(first)) return both.substr(first.size());
  }
  return decode({id});
}

/// JSON has no infinity.
double finite(double logprob) { return std::max(logprob, -9999.0); }

Json chat_token(const std::string& text, double logprob) {
  Json bytes = Json::array();
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", text}, {"logprob", finite(logprob)}, {"bytes", bytes}};
}

std::string event_text(const Json& json) { return "data: " + json_text(json) + "\n\n"; }

const char* finish_reason(const std::string& stop) {
  return stop == "max-new-tokens" || stop == "positions" ? "length" : "stop";
}

Json usage(std::span<const Generated> made) {
  Index prompt = 0, reused = 0, completion = 0;
  for (const Generated& one : made) {
    prompt += one.prompt_tokens;
    reused += one.reused_tokens;
    completion += std::ssize(one.ids);
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", completion},
          {"total_tokens", prompt + completion},
          {"prompt_tokens_details", {{"cached_tokens", reused}}}};
}

}  // namespace

std::string ApiError::body() const {
  const char* type = status == 401   ? "authentication_error"
                     : status >= 500 ? "server_error"
                                     : "invalid_request_error";
  return json_text(Json{{"error",
                         {{"message", what()},
                          {"type", type},
                          {"param", nullptr},
                          {"code", code.empty() ? Json() : Json(code)}}}}) +
         "\n";
}

ApiRequest read_api_request(bool chat, std::string_view body, const LoadedModel& model) {
  try {
    return read_fields(chat, body, model);
  } catch (const ApiError&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    throw ApiError(400, "", error.what());
  }
}

ApiAnswer::ApiAnswer(const ApiRequest& request, const Tokenizer& tokenizer,
                     const std::string& model, const std::string& attention)
    : request_(request),
      tokenizer_(tokenizer),
      model_(model),
      attention_(attention),
      created_(std::chrono::duration_cast<std::chrono::seconds>(
                   std::chrono::system_clock::now().time_since_epoch())
                   .count()) {
  static std::atomic<std::uint64_t> number = 0;
  id_ = fmt::format("{}-{:x}-{}", request.chat ? "chatcmpl" : "cmpl", created_, ++number);
}

ApiAnswer::Json ApiAnswer::head(bool chunk) const {
  const char* object = !request_.chat ? "text_completion"
                       : chunk        ? "chat.completion.chunk"
                                      : "chat.completion";
  return {{"id", id_}, {"object", object}, {"created", created_}, {"model", model_}};
}

/// How a text was computed, which OpenAI's API does not have.
ApiAnswer::Json ApiAnswer::figures(const Generated& made) const {
  return {{"attention", attention_},
          {"density", made.keys_read && made.passes > 0 ? Json(*made.keys_read) : Json()},
          {"prompt_tokens_per_second", made.prefill_rate},
          {"tokens_per_second", made.decode_rate},
          {"tokens_per_pass", made.tokens_per_pass()}};
}

/// The new tokens from number `first` on, in the request's form; null where it asked for none.
ApiAnswer::Json ApiAnswer::logprobs(const std::vector<std::int32_t>& prompt, const Generated& made,
                                    std::size_t first, bool echo) const {
  if (!request_.options.top_logprobs) return nullptr;
  Json content = Json::array(), tokens = content, values = content, tops = content,
       offsets = content;
  std::size_t offset = 0;
  std::optional<std::int32_t> before;
  const auto add = [&](const TokenLogprob& token, bool known) {
    const std::string text = text_of(tokenizer_, before, token.id);
    if (request_.chat) {
      Json one = chat_token(text, token.logprob);
      one["top_logprobs"] = Json::array();
      for (const auto& [id, logprob] : token.top)
        one["top_logprobs"].push_back(chat_token(text_of(tokenizer_, before, id), logprob));
      content.push_back(std::move(one));
    } else {
      Json top = Json::object();
      const auto enter = [&](std::int32_t id, double logprob) {
        top.emplace(text_of(tokenizer_, before, id), finite(logprob));
      };
      for (const auto& [id, logprob] : token.top) enter(id, logprob);
      enter(token.id, token.logprob);
      tokens.push_back(text);
      values.push_back(known ? Json(finite(token.logprob)) : Json());
      tops.push_back(known ? top : Json());
      offsets.push_back(offset);
      offset += std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; });
    }
    before = token.id;
  };
  if (echo) {
    add({.id = prompt.front()}, false);
    for (const TokenLogprob& token : made.prompt_logprobs) add(token, true);
  }
  if (first > 0) before = made.logprobs[first - 1].id;
  if (!before) before = prompt.back();
  for (std::size_t i = first; i < made.logprobs.size(); ++i) add(made.logprobs[i], true);
  if (request_.chat) return {{"content", content}};
  return {{"tokens", tokens},
          {"token_logprobs", values},
          {"top_logprobs", tops},
          {"text_offset", offsets}};
}

std::string ApiAnswer::whole(std::span<const Generated> made) const {
  Json choices = Json::array();
  for (std::size_t i = 0; i < made.size(); ++i) {
    Json choice = {{"index", i}};
    if (request_.chat)
      choice["message"] = {{"role", "assistant"}, {"content", made[i].text}};
    else
      choice["text"] =
          (request_.echo ? replace_invalid_utf8(tokenizer_.decode(request_.prompts[i])) : "") +
          made[i].text;
    choice["logprobs"] = logprobs(request_.prompts[i], made[i], 0, request_.echo);
    choice["finish_reason"] = finish_reason(made[i].stop);
    choice["focus"] = figures(made[i]);
    choices.push_back(std::move(choice));
  }
  Json json = head(false);
  json["choices"] = std::move(choices);
  json["usage"] = usage(made);
  return json_text(json) + "\n";
}

ApiAnswer::Json ApiAnswer::event(const std::string& text, const Json& logprobs,
                                 const Json& finish) const {
  Json choice = {{"index", 0}};
  if (request_.chat)
    choice["delta"] = text.empty() ? Json::object() : Json{{"content", text}};
  else
    choice["text"] = text;
  choice["logprobs"] = logprobs;
  choice["finish_reason"] = finish;
  Json json = head(true);
  json["choices"] = Json::array({choice});  // clang takes {choice} for a copy
  return json;
}

std::string ApiAnswer::begin(const Generated& made) const {
  if (!request_.chat && !request_.echo) return {};
  Json json = event("", nullptr, nullptr);
  Json& choice = json["choices"][0];
  if (request_.chat) {
    choice["delta"] = {{"role", "assistant"}, {"content", ""}};
  } else {
    choice["text"] = replace_invalid_utf8(tokenizer_.decode(request_.prompts[0]));
    choice["logprobs"] = logprobs(request_.prompts[0], made, made.logprobs.size(), true);
  }
  return event_text(json);
}

std::string ApiAnswer::part(const std::string& text, const Generated& made,
                            std::size_t first) const {
  if (text.empty() && first >= made.logprobs.size()) return {};
  return event_text(event(text, logprobs(request_.prompts[0], made, first, false), nullptr));
}

std::string ApiAnswer::end(const Generated& made) const {
  Json last = event("", nullptr, finish_reason(made.stop));
  last["choices"][0]["focus"] = figures(made);
  std::string text = event_text(last);
  if (request_.stream_usage) {
    Json json = head(true);
    json["choices"] = Json::array();
    json["usage"] = usage({&made, 1});
    text += event_text(json);
  }
  return text + "data: [DONE]\n\n";
}

std::string ApiAnswer::error(const ApiError& error) { return "data: " + error.body() + "\n"; }

}  // namespace focus::app
