#ifndef FOCUS_FOCUS_H
#define FOCUS_FOCUS_H

/* The C interface of the shared library libfocus, for other languages; C++ programs include
 * focus/all.h instead.
 *
 * Every function but the first two returns a status; what it makes is written through its last
 * argument, only with FOCUS_OK. No exception leaves the library, and nothing ends the process.
 * Handles may be used in any thread: calls on one model wait for each other (its own callback
 * cannot call it), calls on several run at once. A handle that was closed, or is none, is an error.
 * Strings are UTF-8 and end with 0; `settings` is a JSON object by the names of the commands'
 * options, or NULL. */

#include <stddef.h> /* NOLINT(modernize-deprecated-headers) */
#include <stdint.h> /* NOLINT(modernize-deprecated-headers) */

#ifdef __cplusplus
extern "C" {
#endif

#define FOCUS_API __attribute__((visibility("default")))

typedef enum focus_status {
  FOCUS_OK = 0,
  FOCUS_FAILED = 1, /* focus_error() says why */
  FOCUS_STOPPED = 2 /* by a callback, or by focus_model_cancel() */
} focus_status;
typedef enum focus_dtype { FOCUS_INT32 = 0, FOCUS_FLOAT32 = 1, FOCUS_FLOAT64 = 2 } focus_dtype;

typedef struct focus_model focus_model; /* a model with its adapters and its attention */
typedef struct focus_value focus_value; /* a result: a text or an array */
/* Called with a text during long work; another result than 0 stops the work. */
typedef int (*focus_callback)(const char* text, void* user);

typedef struct focus_array { /* numbers of a value, row by row; they live as long as it does */
  const void* data;
  int64_t shape[2];
  int32_t rank; /* 1 or 2 */
  int32_t dtype;
} focus_array;
typedef struct focus_texts { /* files and folders, and documents in memory */
  const char* const* files;
  size_t num_files;
  const char* const* documents;
  size_t num_documents;
} focus_texts;
typedef struct focus_ids { /* tokens of one text */
  const int32_t* data;
  size_t size;
} focus_ids;

/* "0.1.0" */
FOCUS_API const char* focus_version(void);
/* Of this thread's last call that did not succeed: one line, or the lines of a config's problems.
 * It lives until the thread's next such call. */
FOCUS_API const char* focus_error(void);
/* Threads of each later call; 0: all of the machine. */
FOCUS_API focus_status focus_set_threads(int32_t threads);
/* Where notices go, a line each (what a user should know and is no error); NULL: to stderr. */
FOCUS_API focus_status focus_set_notices(focus_callback notices, void* user);
/* JSON: version, the kernels that this processor allows, threads, bytes of tensors. */
FOCUS_API focus_status focus_machine(focus_value** json);

FOCUS_API focus_status focus_value_text(const focus_value* value, const char** text, size_t* bytes);
FOCUS_API focus_status focus_value_array(const focus_value* value, focus_array* array);
FOCUS_API focus_status focus_value_free(focus_value* value);

/* A Hugging Face folder, a GGUF file or a checkpoint file (.h5). Settings: adapters (a list),
 * tokenizer, bos, precision. Weights of a frozen model stay mapped from their file. */
FOCUS_API focus_status focus_model_open(const char* path, const char* settings,
                                        focus_model** model);
/* A call that runs on it ends first. */
FOCUS_API focus_status focus_model_close(focus_model* model);
/* The call that runs on it in another thread ends soon, with FOCUS_STOPPED. */
FOCUS_API focus_status focus_model_cancel(focus_model* model);
/* JSON: architecture, sizes, parameters, tokenizer, adapters and their settings, attention. */
FOCUS_API focus_status focus_model_info(focus_model* model, focus_value** json);
/* An adapter: focus.h5, lora.h5, a run's folder, a PEFT folder or a GGUF LoRA; it replaces one that
 * attends where it does so too. Detaching takes every adapter off: the base is as it was. */
FOCUS_API focus_status focus_model_attach(focus_model* model, const char* path);
FOCUS_API focus_status focus_model_detach(focus_model* model);
/* Of all later calls: "dense", "summary:8", "hard:2" (focus eval --help); "": the model's own. */
FOCUS_API focus_status focus_model_set_attention(focus_model* model, const char* attention);

/* Ids of a text [tokens], int32; `special`: with the special tokens that precede a prompt. */
FOCUS_API focus_status focus_model_encode(focus_model* model, const char* text, size_t bytes,
                                          int32_t special, focus_value** ids);
FOCUS_API focus_status focus_model_decode(focus_model* model, focus_ids ids, focus_value** text);
/* The prompt that the model's chat template makes of a JSON list of {"role", "content"}; it has its
 * special tokens already. `variables`: a JSON object for the template, or NULL. */
FOCUS_API focus_status focus_model_chat(focus_model* model, const char* messages,
                                        const char* variables, focus_value** text);
/* Of the tokens from `first` on, float32: logits before softmax [tokens - first, vocab_size];
 * hidden states after the last norm [tokens - first, hidden_size]. Of every token but the first,
 * float64: log-probabilities given those before it, in nats [tokens - 1]. */
FOCUS_API focus_status focus_model_logits(focus_model* model, focus_ids ids, size_t first,
                                          focus_value** logits);
FOCUS_API focus_status focus_model_hidden_states(focus_model* model, focus_ids ids, size_t first,
                                                 focus_value** hidden);
FOCUS_API focus_status focus_model_log_probs(focus_model* model, focus_ids ids,
                                             focus_value** log_probs);

/* Work that takes long; its callback, which may be NULL, gets {"work": "evaluate", "share": 0.25}.
 *
 * JSON as focus eval --json writes it. Settings: those of focus eval; attentions: default is the
 * model's. */
FOCUS_API focus_status focus_model_evaluate(focus_model* model, focus_texts texts,
                                            const char* settings, focus_callback progress,
                                            void* user, focus_value** json);
/* Answers to requests of the lm-evaluation-harness, both JSON lines as of focus score. Settings:
 * start, max_length, chat. */
FOCUS_API focus_status focus_model_score(focus_model* model, const char* requests,
                                         const char* settings, focus_callback progress, void* user,
                                         focus_value** answers);
/* Groups the keys by k-means and attaches the groups. JSON: what was chosen. Settings: those of
 * focus fit, with target or density. */
FOCUS_API focus_status focus_model_fit(focus_model* model, focus_texts texts, const char* settings,
                                       focus_callback progress, void* user, focus_value** json);
/* JSON as groups.json of focus groups. Settings: context, max_tokens. */
FOCUS_API focus_status focus_model_groups(focus_model* model, focus_texts texts,
                                          const char* settings, focus_callback progress, void* user,
                                          focus_value** json);
/* JSON as focus generate --json writes it, and logprobs. Settings: the options of focus generate
 * (stop: a list, logit_bias: a list of "ID=NUMBER") and top_logprobs. The callback gets the text
 * piece by piece, "" where a character is not whole; where it stops, "stop" is "caller". */
FOCUS_API focus_status focus_model_generate(focus_model* model, focus_ids prompt,
                                            const char* settings, focus_callback on_text,
                                            void* user, focus_value** json);

/* The adapters as one file (.h5), for focus_model_attach(). */
FOCUS_API focus_status focus_model_save_adapter(focus_model* model, const char* path);
/* For others. Settings: dtype, overwrite, with_code, and format: "adapter" (PEFT's folder, or a
 * Focus in its exchange form), "model" (a Hugging Face folder with its Focus), "gguf" (the LoRA,
 * else the model). */
FOCUS_API focus_status focus_model_export(focus_model* model, const char* path,
                                          const char* settings);

/* A run of focus train in its folder, from a YAML file or NULL, and keys that go before the file's.
 * Options: resume, overwrite, stop_at. The callback gets {"event": "start" | "step" | "validation"
 * | "work", ...}; where it stops the run a checkpoint is written, and "finished" is false. JSON as
 * focus train --json writes it. */
FOCUS_API focus_status focus_train(const char* config, const char* settings, const char* options,
                                   focus_callback events, void* user, focus_value** json);

#ifdef __cplusplus
}
#endif

#endif
