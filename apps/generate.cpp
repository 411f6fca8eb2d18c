#include <cstdio>

#include "apps/command.h"
#include "apps/terminal/progress.h"
#include "autograd/base/check.h"
#include "data/chat/chat_template.h"
#include "data/files/input_file.h"
#include "data/files/notice.h"
#include "data/text/text.h"
#include "focus/models/generation.h"

namespace focus::app {
namespace {

using Ids = std::vector<std::int32_t>;
using Json = nlohmann::ordered_json;

struct GenerateArguments {
  ModelOptions model;
  std::string prompt, prompt_file, json, attention;
  bool chat = false, show_prompt = false, no_cache = false;
  std::string system, messages, chat_template, tools;
  std::vector<std::string> template_values;
  GenerationOptions generation;
  std::string cache = "auto";
  GenerationConfig::Said said;  // by flags
};

Json conversation(const GenerateArguments& o, const std::string& prompt) {
  Json messages = Json::array();
  if (!o.messages.empty())
    messages = parse_messages(read_prompt_file(o.messages), o.messages);
  else
    messages.push_back({{"role", "user"}, {"content", prompt}});
  if (!o.system.empty())
    messages.insert(messages.begin(), Json{{"role", "system"}, {"content", o.system}});
  return messages;
}

ChatTemplate template_of(const GenerateArguments& o, const LoadedModel& model) {
  const std::filesystem::path path = o.chat_template;
  if (path.extension() == ".jinja" || is_regular_file(path))
    return ChatTemplate(read_file(path), o.chat_template);
  return find_chat_template(model.chat_files(), o.chat_template, model.chat_where());
}

/// The text that the model continues; with --chat the conversation through its chat template, up to
/// where the assistant's turn begins.
std::string prompt_text(const GenerateArguments& o, const LoadedModel& model) {
  const std::string text = o.prompt_file.empty() ? o.prompt : read_prompt_file(o.prompt_file);
  if (!o.chat) return text;
  ChatVariables variables;
  variables.special_tokens = chat_special_tokens(model.chat_files(), model.chat_where());
  if (!o.tools.empty()) variables.tools = parse_tools(read_prompt_file(o.tools), o.tools);
  for (const std::string& word : o.template_values) variables.take_word(word, "--template");
  return template_of(o, model).render(conversation(o, text), variables);
}

/// The tokens of `text`. A chat template writes all special tokens itself: none is put before it.
Ids prompt_ids(const GenerateArguments& options, const LoadedModel& model,
               const std::string& text) {
  if (text.empty()) fail("the prompt is empty; give it some text to continue");
  Ids ids = options.chat ? model.require_tokenizer().encode(text) : model.prompt_ids(text);
  model.require_ids(ids, "the prompt");
  if (ids.empty()) fail("the prompt has no tokens; give it some text to continue");
  return ids;
}

/// Takes from the model's generation_config.json what no flag says.
void tell_defaults(GenerateArguments& o, const LoadedModel& model) {
  const GenerationConfig& config = model.files->generation;
  const std::string taken = config.apply(o.said, o.generation.sampling);
  o.generation.until = config.stop_strings;
  if (!taken.empty()) fmt::print(stderr, "{}: {} (flags go before it)\n", kGenerationConfig, taken);
  if (!config.not_applied.empty())
    notice("{}: {}: not applied here: {}", model.where, kGenerationConfig,
           fmt::join(config.not_applied, ", "));
}

void write_now(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

int run_generation(const GenerateArguments& options, LoadedModel& model,
                   const AttentionSpec& spec) {
  const std::string text = prompt_text(options, model);
  if (options.show_prompt) {
    write_now(text);
    return 0;
  }
  const Ids prompt = prompt_ids(options, model, text);
  const Index positions = model.decoder->config().max_position_embeddings;
  const auto prompt_tokens = static_cast<Index>(prompt.size());
  if (prompt_tokens > positions)
    fail("the prompt has {} tokens, but {} has {} positions; shorten it", prompt_tokens,
         options.model.base, positions);
  const ActiveAttention active(model, spec);
  if (!active.causal())
    fail(
        "{}: with {} attention depends on later tokens, so it cannot generate; use --attention "
        "dense",
        options.model.base, active.name());
  if (const std::string notice = fit_notice(model, prompt_tokens);
      !notice.empty() && spec.kind != AttentionKind::dense)
    fmt::print(stderr, "{}\n", notice);
  // A mechanism of the table has no cache: it computes everything again with every token.
  const CacheDtype dtype = cache_dtype(options.cache, options.model.precision);
  const bool cached = !options.no_cache && active.mechanism() == nullptr;
  Generator generator(*model.decoder, model.focus(), active.mode(),
                      cached ? std::optional(dtype) : std::nullopt);
  const Generated done = generate(model, generator, prompt, options.generation, write_now);
  write_now("\n");

  if (done.stop == "positions")
    fmt::print(stderr, "stopped: the model has no more than {} positions\n", positions);
  fmt::print(stderr, "prompt {} tokens, {:.1f} tok/s; {} new tokens, {:.1f} tok/s ({})\n",
             prompt_tokens, done.prefill_rate, done.ids.size(), done.decode_rate, done.stop);
  fmt::print(stderr, "attention {}, {}, ", active.title(), name_of(options.model.precision));
  Json share, bytes, dtype_name;
  if (const RoutedCache* cache = generator.cache()) {
    share = cache->share_read();
    bytes = cache->bytes();
    dtype_name = name_of(dtype);
    fmt::print(stderr, "{:.1f}% of the cached keys read, {} cache {}\n", 100 * cache->share_read(),
               name_of(dtype), format_bytes(static_cast<double>(cache->bytes())));
  } else {
    fmt::print(stderr, "no cache\n");
  }
  write_json(options.json, {{"model", options.model.base},
                            {"adapter", options.model.adapter},
                            {"attention", active.name()},
                            {"routing", active.label().routing_text()},
                            {"precision", name_of(options.model.precision)},
                            {"prompt", options.chat ? Json(text) : nullptr},
                            {"prompt_tokens", prompt_tokens},
                            {"new_tokens", done.ids.size()},
                            {"ids", done.ids},
                            {"text", done.text},
                            {"stop", done.stop},
                            {"prefill_tokens_per_second", done.prefill_rate},
                            {"decode_tokens_per_second", done.decode_rate},
                            {"keys_read", share},
                            {"kv_cache_dtype", dtype_name},
                            {"cache_bytes", bytes}});
  return 0;
}

void add_prompt_options(CLI::App& app, GenerateArguments& o) {
  CLI::Option_group* prompt = app.add_option_group("prompt", "one of");
  prompt->add_option("--prompt,--user", o.prompt,
                     "text to continue; with --chat the user's message");
  prompt->add_option("--prompt-file", o.prompt_file,
                     "file with the text to continue (.txt, .xz); a final line break is removed");
  CLI::Option* const chat =
      app.add_flag("--chat", o.chat,
                   "answer as the assistant in a conversation: --prompt is the user's message, and "
                   "the model's chat template renders the prompt");
  CLI::Option* const messages =
      prompt
          ->add_option(
              "--messages", o.messages,
              "file of messages {\"role\": ..., \"content\": ...}: JSON lines or one JSON list")
          ->needs(chat);
  prompt->require_option(1);
  app.add_option("--system", o.system, "system message, before the user's message")
      ->needs(chat)
      ->excludes(messages);
  app.add_option("--chat-template", o.chat_template,
                 "a .jinja file, or the name of one of the model's templates if it has several")
      ->needs(chat);
  app.add_option("--tools", o.tools, "a .json file with the list of tools, for the chat template")
      ->needs(chat);
  app.add_option("--template", o.template_values,
                 "KEY=VALUE for the chat template, such as enable_thinking=false; several may be "
                 "given")
      ->needs(chat)
      ->allow_extra_args(false);
  app.add_flag("--show-prompt", o.show_prompt, "print the rendered prompt and do not generate")
      ->needs(chat);
}

}  // namespace

int run_generate(Arguments arguments) {
  GenerateArguments o;
  CLI::App app(
      "Continues a prompt: new text goes to stdout as it is generated, figures to stderr. The KV "
      "cache is stored by group: with hard attention a new token reads only its own groups and the "
      "local window, with summary attention the selected groups, the summary tokens of the others "
      "and the window.",
      "focus generate");
  o.model.add_to(app);
  add_prompt_options(app, o);
  app.add_option("--max-new-tokens", o.generation.max_new_tokens, "largest number of new tokens")
      ->check(kPositive)
      ->capture_default_str();
  add_attention_option(
      app, o.attention,
      "dense, hard:2 (each token keeps its 2 best groups), summary:2 (2 groups exactly, one "
      "summary token for each other group), local, or another mechanism, without a cache; default: "
      "the attention that the model was trained with; with a Focus adapter summary if it groups "
      "keys or was trained with it, otherwise hard:1; otherwise dense");
  app.add_option("--temperature", o.generation.sampling.temperature,
                 "softmax temperature; 0: greedy (default of this and the next three options: the "
                 "model's generation_config.json)")
      ->capture_default_str();
  app.add_option("--top-k", o.generation.sampling.top_k,
                 "sample from the N most probable tokens; 0: from all")
      ->capture_default_str();
  app.add_option("--top-p", o.generation.sampling.top_p,
                 "sample from the smallest set of tokens with at least this total probability")
      ->capture_default_str();
  app.add_option("--repetition-penalty", o.generation.sampling.repetition_penalty,
                 "divides positive logits of tokens already in the text and multiplies negative "
                 "ones; 1: none")
      ->capture_default_str();
  app.add_option("--seed", o.generation.seed, "sampling seed")->capture_default_str();
  add_cache_option(app, o.cache);
  app.add_flag("--no-cache", o.no_cache,
               "recompute everything for each token, without a cache (reference)");
  app.add_option("--json", o.json, kJsonHelp);
  parse_arguments(app, arguments);

  o.generation.sampling.validate();
  o.said = {.temperature = app.count("--temperature") > 0,
            .top_k = app.count("--top-k") > 0,
            .top_p = app.count("--top-p") > 0,
            .repetition_penalty = app.count("--repetition-penalty") > 0};
  LoadedModel model = o.model.load();
  tell_defaults(o, model);
  return run_generation(o, model, attention_to_generate(o.attention, model, "--attention"));
}

}  // namespace focus::app
