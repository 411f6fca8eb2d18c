#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/chat/chat_template.h"
#include "focus/evaluation/evaluation.h"
#include "focus/method/cache_numbers.h"
#include "focus/models/generation.h"
#include "focus/training/fit.h"

// What most programs do with a model, each by one call; unspecified settings suit the model.
// fit() and open_session() have the others.
namespace focus {

struct OpenOptions {
  std::vector<std::string> adapters = {};  // one that attends, and LoRA: files or folders
  std::string tokenizer = {};              // in the place of the model's own
  Bos bos = Bos::automatic;
  std::optional<Precision> precision = {};  // none: as load_model() chooses
  WeightUse use = WeightUse::frozen;        // trainable ones are in float32
};

/// A checkpoint file, a Hugging Face folder or a GGUF file, with adapters on. Throws
/// std::runtime_error, one line.
LoadedModel open(const std::filesystem::path& path, const OpenOptions& options = {});

/// Perplexity and more of texts by an attention spec; without one by the model's own attention.
/// Windows are as long as those that the groups were fitted on, else 512, where `settings` say
/// nothing.
Row evaluate(LoadedModel& model, const std::string& attention, const Texts& texts,
             EvalSettings settings = {}, const EvalPass& pass = {});

/// How a text is gone on with.
struct TextOptions {
  std::string attention = {};  // a spec; empty: attention_to_generate()'s choice
  GenerationOptions generation = {};
  /// The KV cache has these numbers; without it float16 where the precision is not float32.
  std::optional<CacheDtype> cache_dtype = {};
  bool cached = true;  // false: everything is computed again for each token (the reference)
  /// Who guesses tokens that dense attention then computes together: "ngram", "groups" (of the
  /// Focus adapter) or an attention that reads less, such as "summary:2"; empty: nobody.
  std::string speculate = {};
  /// A file of CacheFiles: the prompt continues from the longest prefix it has in common with it.
  /// Empty: none.
  std::filesystem::path prompt_cache = {};

  /// Sampling and stop strings of the model's generation_config.json, as transformers has them.
  static TextOptions of(const LoadedModel& model);
};

/// What is added to the logits of a token, which is named by its id. Throws std::runtime_error, a
/// line that begins with `where`.
std::pair<std::int32_t, Real> logit_bias(const std::string& id, double bias,
                                         const LoadedModel& model, const std::string& where);
/// The same of a word ID=NUMBER.
std::pair<std::int32_t, Real> logit_bias(const std::string& word, const LoadedModel& model,
                                         const std::string& where);

/// What came of it, and how; its visit is what `focus generate --json` writes of it.
struct GeneratedText : Generated {
  AttentionLabel attention;
  std::optional<CacheDtype> cache_dtype;  // only with a cache
  CacheFiles::Kept prompt_cache = {};     // what the file has now

  void visit(auto&& f) {
    std::string routing = attention.routing_text();
    auto new_tokens = std::ssize(ids);
    f("attention", attention.name);
    FOCUS_MEMBERS(f, routing, prompt_tokens, reused_tokens, new_tokens, ids, text, stop);
    f("prefill_tokens_per_second", prefill_rate);
    f("decode_tokens_per_second", decode_rate);
    f("keys_read", keys_read);
    f("cache_type", cache_dtype);
    FOCUS_MEMBERS(f, cache_bytes, passes, drafted_tokens, right_tokens);
  }
};

/// The attention of a text; errors begin with `where`.
AttentionSpec attention_to_generate(const TextOptions& options, const LoadedModel& model,
                                    const std::string& where);
/// The model for a Scheduler, with the attention that is on, which must stay on. Throws
/// std::runtime_error where it cannot generate.
GenerationModel generation_model(const LoadedModel& model, const ActiveAttention& active,
                                 const TextOptions& options);

/// Goes on with a prompt. A mechanism of the table has no cache. Throws std::runtime_error where
/// the prompt is empty or has more tokens than the model has positions, and for attention that
/// cannot generate.
GeneratedText generate(LoadedModel& model, const std::vector<std::int32_t>& prompt,
                       const TextOptions& options, const OnText& on_text = {});
GeneratedText generate(LoadedModel& model, const std::string& prompt, const TextOptions& options,
                       const OnText& on_text = {});
/// With TextOptions::of() the model.
GeneratedText generate(LoadedModel& model, const std::string& prompt, const OnText& on_text = {});

struct ChatMessage {
  std::string role, content;  // "user", "How are you?"
};

/// A conversation as the model's chat template writes it, up to where the assistant's turn begins.
/// `chat_template` is a .jinja file, or the name of one of the model's templates where it has
/// several; of `variables` the special tokens are filled in. Throws std::runtime_error.
std::string chat_prompt(const LoadedModel& model, const nlohmann::ordered_json& messages,
                        ChatVariables variables = {}, const std::string& chat_template = "");
/// The ids of such a prompt: the template has written all special tokens.
std::vector<std::int32_t> chat_ids(const LoadedModel& model, const std::string& prompt);
/// The assistant's answer.
GeneratedText chat(LoadedModel& model, const std::vector<ChatMessage>& messages,
                   const TextOptions& options, const OnText& on_text = {});

}  // namespace focus
