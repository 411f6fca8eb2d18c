#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "autograd/gemm/frozen_matrix.h"
#include "data/tokens/tokenize.h"
#include "focus/evaluation/attention_spec.h"
#include "focus/models/model_files.h"
#include "optim/ranks.h"

namespace focus {

/// Preprocessing of a text whose tokens are separated by blanks.
enum class Detokenize { none, wikitext };
constexpr auto enum_names(Detokenize) { return enum_list("none", "wikitext"); }

/// What a row is compared with, token by token.
enum class Against {
  none,
  dense,  // the same model with dense attention
  base    // the same without its LoRA
};
constexpr auto enum_names(Against) { return enum_list("none", "dense", "base"); }

/// How texts are evaluated: the same for a command's options and a comparison's config.
struct EvalSettings {
  std::vector<std::string> attentions = {};
  std::string separator = {};
  Index context = 0, stride = 0, max_documents = 0, max_tokens = 0;
  Index default_context = 512;  // where context is 0
  Against against = Against::none;
  bool beyond_positions = false;
  Detokenize detokenize = Detokenize::none;
  ExampleSettings examples = {};

  template <class F>
  void visit(F&& f) {
    visit_windows(f);
    examples.visit(f);
  }
  /// All but the examples.
  template <class F>
  void visit_windows(F&& f) {
    f("attentions", attentions,
      "attention specs, one row each: dense; local (Focus's local window only); soft; hard:2 (each "
      "token keeps its 2 best groups); focus (soft and hard of every k); trained (the attention "
      "that the model was trained with); or another mechanism: window:128, performer:256, "
      "routing_transformer:8, sparq:32, magicpig:8, sink_window:128, quest:4, moba:2, oracle:32, "
      "random_groups:4, indexer:32; summary:2 (Focus: 2 groups exactly, one summary token for each "
      "other group). More settings as :KEY=VALUE, such as hard:2:gate=drop, "
      "summary:1:local_window=20, soft:balance=sequence, sparq:32:rank=16");
    f("separator", separator,
      "separator between the documents of a file, such as <|endoftext|>: each document is scored "
      "separately, without surrounding whitespace; empty: each file is one");
    f("context", context,
      "tokens per window; 0: that of the groups' fit, otherwise 512; at most the model's positions",
      {0, 1 << 22});
    f("stride", stride, "tokens from one window to the next; 0: half the context", {0, 1 << 22});
    f("max_documents", max_documents, "use only the first N documents; 0: all", {0, 1e9});
    f("max_tokens", max_tokens,
      "use only the first N tokens of each document, including special tokens before it; 0: all",
      {0, 1e12});
    f("against", against,
      "compare each row with dense attention on the same tokens: KL(dense || row), and the mean "
      "difference in nats with its standard error over tokens; dense: of the same model; base: of "
      "the model without its LoRA");
    f("beyond_positions", beyond_positions,
      "allow a context longer than the model's positions, if these are rotary: the model was not "
      "trained there");
    f("detokenize", detokenize,
      "wikitext: undo WikiText's tokenization; words and bytes are counted before that, each "
      "line's end as a word, as its authors do");
  }

  /// The same with context and stride said. Throws std::invalid_argument where they do not fit the
  /// model's positions.
  EvalSettings for_model(const LoadedModel& model) const;
};

/// Throws std::invalid_argument, one line that begins with `what`, where sequences of so many
/// tokens do not fit the model's positions. Learned positions end where their table ends; rotary
/// ones continue, and `beyond` allows positions that were not trained.
void require_positions(const LoadedModel& model, Index tokens, bool beyond,
                       const std::string& what);
/// What a reader has to know of figures of such sequences; empty where all positions were trained.
std::string positions_notice(const LoadedModel& model, Index tokens);
/// The same of groups that were fitted on shorter windows; empty where they were not.
std::string fit_notice(const LoadedModel& model, Index tokens);
/// Tokens of the windows that a model's groups were fitted on; 0 where none were.
Index fitted_context(const LoadedModel& model);

/// One text as one stream of tokens, what LoadedModel::bos says around it.
struct EvalText {
  std::string name;
  std::vector<std::int32_t> ids;
  std::int64_t bytes = 0, words = 0;
  /// Put before each window, as its first token, which is not scored.
  std::optional<std::int32_t> window_start = {};
  /// Whether each id is scored; empty: all are.
  std::vector<std::uint8_t> counts = {};
  bool is_example = false;  // a line of JSONL

  /// Tokens that are put before each window.
  Index lead() const { return window_start ? 1 : 0; }
  bool counts_at(Index i) const { return counts.empty() || counts[i] != 0; }
  /// Tokens that are scored: the first has nothing before it to be predicted from.
  Index scored() const;
};

/// Tokenizes texts, one stream for each document or line of JSONL, of which the tokens are scored
/// that a training's loss is of. `bytes` and `words` are those of the tokens that are left and
/// scored, or those of the text as it was where it is detokenized. Those in memory are named
/// "text 1" and so on.
std::vector<EvalText> read_texts(const LoadedModel& model, const Texts& texts,
                                 const EvalSettings& settings = {});

/// What a decoder's own dense attention made of the scored tokens, kept from one row to the next:
/// rows of the same windows in the same order compare with it. Kept while it fits in half a GiB;
/// what lies beyond is worked out for each row.
class DenseReference {
 public:
  struct Batch {
    Tensor hidden;             // the last norm's output of the scored rows
    std::vector<double> nats;  // of the targets
  };
  /// The next batch of a row; worked out by `make` where it is not here.
  const Batch& next(const std::function<Batch()>& make);
  /// Before each row.
  void rewind() { at_ = 0; }

 private:
  std::vector<Batch> kept_;
  Batch last_;
  std::size_t at_ = 0;
  Index numbers_ = 0;
};

/// Share of the work done, 0 to 1.
using ShareDone = std::function<void(double)>;

/// What an evaluation does beside its figures, and who shares it.
struct EvalPass {
  ShareDone progress = {};
  /// Shared by rows of the same model, texts and settings, for `against`.
  DenseReference* dense = nullptr;
  /// What `against` base leaves out; the overload of a LoadedModel finds it.
  LoraModel* lora = nullptr;
  /// Each of them evaluates the same, computes its share of the windows, and has all figures in the
  /// end: those of one process, bit for bit.
  Ranks* ranks = &one_process();
};

/// What one attention came to on some texts: the row of every table, page and file. A new figure is
/// a member here, a line of the visit, and what computes it. Without a value: not measured.
struct Row {
  AttentionLabel attention = {};
  Precision precision = Precision::float32;
  // By word and by byte, whatever the tokens are: comparable between tokenizers. NaN where nothing
  // was counted.
  double perplexity = 0, bits_per_byte = 0, word_perplexity = 0, byte_perplexity = 0;
  double nats_per_token = 0;
  std::int64_t tokens_scored = 0;
  double pairs_attended = 1, pairs_choosing = 0;  // shares of the causal pairs
  // Against dense attention on the same tokens (EvalSettings::against): KL(dense || row), and the
  // difference in nats per token with its standard error over tokens.
  std::optional<double> kl = {}, nats_against_dense = {}, nats_against_dense_error = {};
  // Attention with groups only: pairs beyond the local window, the largest group's share (mean over
  // layers, and in the worst layer) and, of groups of tokens, the entropy of the assignments.
  std::optional<double> pairs_distant = {}, largest_group = {}, largest_group_worst_layer = {};
  std::optional<double> entropy = {};
  std::optional<std::vector<std::vector<std::int64_t>>> group_sizes = {};  // [layers][groups]
  std::optional<std::vector<double>> nats_of_documents = {};               // of 2 to 1,000 texts
  std::optional<double> tokens_per_second = {};                            // scored
  std::optional<std::vector<std::pair<std::string, std::string>>> settings = {};  // of a baseline

  void visit(auto&& f) {
    attention.visit(f);
    FOCUS_MEMBERS(f, precision, perplexity, bits_per_byte, word_perplexity, byte_perplexity,
                  nats_per_token, tokens_scored, pairs_attended, pairs_choosing, kl,
                  nats_against_dense, nats_against_dense_error, pairs_distant, largest_group,
                  largest_group_worst_layer, entropy, group_sizes, nats_of_documents,
                  tokens_per_second, settings);
  }
};

/// Perplexity by the strided config of transformers' documentation: windows of `context` tokens
/// every `stride`; each scores what none before has, but for the first token of all. Where a text
/// has a window_start, a window is that and up to `context` - 1 tokens. With the attention that the
/// decoder has; `against` runs it with its own, too, or takes what `pass.dense` has kept of that.
/// Without a label, counts and speed.
Row evaluate(Decoder& decoder, std::span<const EvalText> texts, const EvalSettings& settings,
             const EvalPass& pass = {});
inline Row evaluate(Decoder& decoder, const EvalText& text, const EvalSettings& settings,
                    const EvalPass& pass = {}) {
  return evaluate(decoder, std::span(&text, 1), settings, pass);
}

/// One attention over all texts. `settings` say context and stride.
Row evaluate(LoadedModel& model, const AttentionSpec& attention, std::span<const EvalText> texts,
             const EvalSettings& settings, EvalPass pass = {});

struct Leak {
  Index cut = 0;       // tokens from here on were changed
  Index position = 0;  // the first whose logits differ
};
/// Does a token's prediction depend on later tokens? Changes those of a random sequence of
/// `context` tokens, at least 2, from some `cuts` on, one after the other, and demands
/// bit-identical logits before them, with the decoder's current attention; empty if it does not
/// leak. The same seed, the same tokens.
std::optional<Leak> find_leak(const Decoder& decoder, Index context, std::int64_t cuts,
                              std::uint64_t seed);

}  // namespace focus
