#include "focus/training/tasks.h"

#include <cmath>
#include <cstdlib>

#include "autograd/base/check.h"
#include "data/files/input_file.h"
#include "data/files/notice.h"

namespace focus {
namespace {

void require_prompt(const LoadedModel& model, const std::vector<std::int32_t>& prompt) {
  if (prompt.empty()) fail("the prompt has no tokens; give it some text to continue");
  model.require_ids(prompt, "the prompt");
  const Index positions = model.decoder->config().max_position_embeddings;
  if (std::ssize(prompt) > positions)
    fail("the prompt has {} tokens, but {} has {} positions; shorten it", prompt.size(),
         model.where, positions);
}

std::optional<Drafting> drafting_of(const TextOptions& options, const ActiveAttention& active,
                                    const LoadedModel& model) {
  const std::string& by = options.speculate;
  if (by.empty()) return std::nullopt;
  if (active.label().kind != AttentionKind::dense || !options.cached)
    fail("speculate {}: drafts are for dense attention with a cache, not for {}", by,
         options.cached ? active.name() : "generation without one");
  if (by == "ngram") return Drafting{};
  const AttentionSpec drafts =
      attention_to_generate(by == "groups" ? "summary" : by, model, "speculate");
  if (drafts.kind != AttentionKind::summary && drafts.kind != AttentionKind::hard)
    fail("speculate {}: expected ngram, groups, or summary:M or hard:K of a Focus adapter", by);
  return Drafting{drafts};
}

}  // namespace

LoadedModel open(const std::filesystem::path& path, const OpenOptions& options) {
  LoadedModel model = load_model(path, options.tokenizer, options.precision, options.use);
  model.bos = options.bos;
  load_adapters(options.adapters, model);
  if (!options.tokenizer.empty()) model.adapter_chat.reset();  // the user has chosen
  return model;
}

Row evaluate(LoadedModel& model, const std::string& attention, const Texts& texts,
             EvalSettings settings, const EvalPass& pass) {
  if (const Index fitted = fitted_context(model); fitted > 0) settings.default_context = fitted;
  settings = settings.for_model(model);
  const AttentionSpec spec =
      attention.empty() ? own_attention(model)
                        : resolve_attention(parse_attention(attention), model, "attention");
  return evaluate(model, spec, read_texts(model, texts, settings), settings, pass);
}

TextOptions TextOptions::of(const LoadedModel& model) {
  TextOptions options;
  if (!model.files) return options;
  model.files->generation.apply({}, options.generation.sampling);
  options.generation.until = model.files->generation.stop_strings;
  return options;
}

std::pair<std::int32_t, Real> logit_bias(const std::string& id, double bias,
                                         const LoadedModel& model, const std::string& where) {
  const bool is_id =
      !id.empty() && id.size() < 10 && id.find_first_not_of("0123456789") == std::string::npos;
  if (!is_id || std::stol(id) >= model.decoder->config().vocab_size)
    fail("{}: expected the id of a token of the model as the name", where);
  if (!(std::abs(bias) <= 100))
    fail("{}: expected a number from -100 to 100, found {}", where, bias);
  return {std::stoi(id), static_cast<Real>(bias)};
}

std::pair<std::int32_t, Real> logit_bias(const std::string& word, const LoadedModel& model,
                                         const std::string& where) {
  const std::size_t equals = std::min(word.find('='), word.size());
  const std::string number = word.substr(std::min(equals + 1, word.size()));
  char* stop = nullptr;
  const double bias = std::strtod(number.c_str(), &stop);
  if (number.empty() || *stop != 0) fail("{}: expected ID=NUMBER, got {}", where, word);
  return logit_bias(word.substr(0, equals), bias, model, where + " " + word);
}

GenerationModel generation_model(const LoadedModel& model, const ActiveAttention& active,
                                 const TextOptions& options) {
  if (!active.causal())
    fail("{}: with {} attention depends on later tokens, so it cannot generate; use dense",
         model.where, active.name());
  const bool exact = model.decoder->head_weight().precision() == Precision::float32;
  std::optional<CacheDtype> cache;
  if (options.cached && active.mechanism() == nullptr)
    cache = options.cache_dtype.value_or(exact ? CacheDtype::float32 : CacheDtype::float16);
  GenerationModel generation = generation_model(model, active.mode(), cache);
  generation.drafting = drafting_of(options, active, model);
  return generation;
}

AttentionSpec attention_to_generate(const TextOptions& options, const LoadedModel& model,
                                    const std::string& where) {
  const bool dense = options.attention.empty() && !options.speculate.empty();
  return attention_to_generate(dense ? "dense" : options.attention, model, where);
}

GeneratedText generate(LoadedModel& model, const std::vector<std::int32_t>& prompt,
                       const TextOptions& options, const OnText& on_text) {
  options.generation.sampling.validate();
  require_prompt(model, prompt);
  const AttentionSpec spec = attention_to_generate(options, model, "attention");
  const ActiveAttention active(model, spec);
  GenerationModel with = generation_model(model, active, options);
  std::optional<CacheFiles> file;
  if (!options.prompt_cache.empty())
    with.files = &file.emplace(options.prompt_cache, cache_identity(model, with));
  if (const std::string line = fit_notice(model, std::ssize(prompt));
      !line.empty() && spec.kind != AttentionKind::dense)
    notice("{}", line);
  GeneratedText made{generate(with, prompt, options.generation, on_text), active.label(),
                     with.cache};
  if (file) {
    file->finish();
    made.prompt_cache = file->kept().back();
  }
  return made;
}

GeneratedText generate(LoadedModel& model, const std::string& prompt, const TextOptions& options,
                       const OnText& on_text) {
  return generate(model, model.prompt_ids(prompt), options, on_text);
}

GeneratedText generate(LoadedModel& model, const std::string& prompt, const OnText& on_text) {
  return generate(model, prompt, TextOptions::of(model), on_text);
}

std::string chat_prompt(const LoadedModel& model, const nlohmann::ordered_json& messages,
                        ChatVariables variables, const std::string& chat_template) {
  variables.special_tokens = chat_special_tokens(model.chat_files(), model.chat_where());
  const std::filesystem::path path = chat_template;
  if (path.extension() == ".jinja" || is_regular_file(path))
    return ChatTemplate(read_file(path), chat_template).render(messages, variables);
  return find_chat_template(model.chat_files(), chat_template, model.chat_where())
      .render(messages, variables);
}

std::vector<std::int32_t> chat_ids(const LoadedModel& model, const std::string& prompt) {
  return model.require_tokenizer().encode(prompt);
}

GeneratedText chat(LoadedModel& model, const std::vector<ChatMessage>& messages,
                   const TextOptions& options, const OnText& on_text) {
  auto list = nlohmann::ordered_json::array();
  for (const auto& [role, content] : messages)
    list.push_back({{"role", role}, {"content", content}});
  return generate(model, chat_ids(model, chat_prompt(model, list)), options, on_text);
}

}  // namespace focus
