#include <algorithm>
#include <cstdio>

#include "apps/api.h"
#include "apps/command.h"
#include "apps/terminal/progress.h"
#include "autograd/base/check.h"
#include "data/chat/chat_template.h"
#include "data/files/notice.h"
#include "data/settings/struct_json.h"
#include "data/text/text.h"
#include "focus/training/tasks.h"

namespace focus::app {
namespace {

using Json = nlohmann::ordered_json;

struct GenerateArguments {
  ModelOptions model;
  std::string prompt, prompt_file, json, attention, speculate;
  bool chat = false, show_prompt = false, no_cache = false;
  std::string system, messages, chat_template, tools;
  std::vector<std::string> template_values, biases;
  GenerationOptions generation;
  std::string cache = "auto", prompt_cache;
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

/// The text that the model continues; with --chat the conversation through its chat template, up to
/// where the assistant's turn begins.
std::string prompt_text(const GenerateArguments& o, const LoadedModel& model) {
  std::string text = o.prompt_file.empty() ? o.prompt : read_prompt_file(o.prompt_file);
  if (!o.chat) return text;
  ChatVariables variables;
  if (!o.tools.empty()) variables.tools = parse_tools(read_prompt_file(o.tools), o.tools);
  for (const std::string& word : o.template_values) variables.take_word(word, "--template");
  return chat_prompt(model, conversation(o, text), variables, o.chat_template);
}

/// Takes from the model's generation_config.json what no flag says.
void tell_defaults(GenerateArguments& o, const LoadedModel& model) {
  const GenerationConfig& config = model.files->generation;
  const std::string taken = config.apply(o.said, o.generation.sampling);
  o.generation.until.insert(o.generation.until.end(), config.stop_strings.begin(),
                            config.stop_strings.end());
  if (!taken.empty()) fmt::print(stderr, "{}: {} (flags go before it)\n", kGenerationConfig, taken);
  if (!config.not_applied.empty())
    notice("{}: {}: not applied here: {}", model.where, kGenerationConfig,
           fmt::join(config.not_applied, ", "));
}

bool write_now(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
  return true;
}

int run_generation(const GenerateArguments& options, LoadedModel& model) {
  const std::string text = prompt_text(options, model);
  if (options.show_prompt) {
    write_now(text);
    return 0;
  }
  if (text.empty()) fail("the prompt is empty; give it some text to continue");
  const GeneratedText done =
      generate(model, options.chat ? chat_ids(model, text) : model.prompt_ids(text),
               {.attention = options.attention,
                .generation = options.generation,
                .cache_dtype = cache_dtype(options.cache, options.model.precision),
                .cached = !options.no_cache,
                .speculate = options.speculate,
                .prompt_cache = options.prompt_cache},
               write_now);
  write_now("\n");

  if (done.stop == "positions")
    fmt::print(stderr, "stopped: the model has no more than {} positions\n",
               model.decoder->config().max_position_embeddings);
  fmt::print(stderr, "prompt {} tokens, {:.1f} tok/s; {} new tokens, {:.1f} tok/s ({})\n",
             done.prompt_tokens, done.prefill_rate, done.ids.size(), done.decode_rate, done.stop);
  fmt::print(stderr, "attention {}, {}, ", done.attention.title(),
             name_of(options.model.precision));
  if (done.cache_dtype) {
    fmt::print(stderr, "{:.1f}% of the cached keys read, {} cache {}\n", 100 * *done.keys_read,
               name_of(*done.cache_dtype), format_bytes(static_cast<double>(*done.cache_bytes)));
  } else {
    fmt::print(stderr, "no cache\n");
  }
  if (!options.prompt_cache.empty())
    fmt::print(stderr, "prompt cache: {} of {} tokens reused; {} has {} tokens in {}\n",
               done.reused_tokens, done.prompt_tokens, options.prompt_cache,
               done.prompt_cache.ids.size(),
               format_bytes(static_cast<double>(done.prompt_cache.bytes)));
  if (!options.speculate.empty())
    fmt::print(stderr, "speculation {}: {} of {} drafts right, {:.2f} tokens a pass\n",
               options.speculate, done.right_tokens, done.drafted_tokens, done.tokens_per_pass());
  Json figures = {{"model", options.model.base},
                  {"adapter", options.model.adapter},
                  {"precision", name_of(options.model.precision)},
                  {"prompt", options.chat ? Json(text) : nullptr}};
  figures.update(struct_to_json(done));
  write_json(options.json, figures);
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
                 "softmax temperature; 0: greedy (default of this and the next four options: the "
                 "model's generation_config.json)")
      ->capture_default_str();
  app.add_option("--top-k", o.generation.sampling.top_k,
                 "sample from the N most probable tokens; 0: from all")
      ->capture_default_str();
  app.add_option("--top-p", o.generation.sampling.top_p,
                 "sample from the smallest set of tokens with at least this total probability")
      ->capture_default_str();
  app.add_option("--min-p", o.generation.sampling.min_p,
                 "sample from the tokens with at least this share of the highest probability; 0: "
                 "from all")
      ->capture_default_str();
  app.add_option("--repetition-penalty", o.generation.sampling.repetition_penalty,
                 "divides positive logits of tokens already in the text and multiplies negative "
                 "ones; 1: none")
      ->capture_default_str();
  app.add_option("--logit-bias", o.biases,
                 "ID=NUMBER, from -100 to 100, is added to a token's logit; several may be given")
      ->allow_extra_args(false);
  app.add_option("--stop", o.generation.until, "end the text before this one; several may be given")
      ->allow_extra_args(false);
  app.add_option("--seed", o.generation.seed, "sampling seed")->capture_default_str();
  add_cache_option(app, o.cache);
  CLI::Option* const no_cache = app.add_flag(
      "--no-cache", o.no_cache, "recompute everything for each token, without a cache (reference)");
  app.add_option("--prompt-cache", o.prompt_cache,
                 "file for the cache that the prompt makes: a later prompt that begins alike "
                 "computes only what differs")
      ->excludes(no_cache);
  app.add_option("--speculate", o.speculate,
                 "guess the next tokens and let dense attention compute them together: the same "
                 "text in less time. ngram: what followed the last tokens before; groups: by the "
                 "groups of the Focus adapter (or summary:M, hard:K); as many as pay");
  app.add_option("--json", o.json, kJsonHelp);
  parse_arguments(app, arguments);

  o.generation.sampling.validate();
  o.said = {.temperature = app.count("--temperature") > 0,
            .top_k = app.count("--top-k") > 0,
            .top_p = app.count("--top-p") > 0,
            .repetition_penalty = app.count("--repetition-penalty") > 0,
            .min_p = app.count("--min-p") > 0};
  if (std::ranges::find(o.generation.until, std::string()) != o.generation.until.end())
    fail("--stop: an empty text would end every text");
  LoadedModel model = o.model.load();
  for (const std::string& word : o.biases)
    o.generation.logit_bias.push_back(logit_bias(word, model, "--logit-bias"));
  tell_defaults(o, model);
  if (!o.attention.empty() || o.speculate.empty())
    attention_to_generate(o.attention, model, "--attention");  // errors name the option
  return run_generation(o, model);
}

}  // namespace focus::app
