#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "autograd/precision.h"
#include "data/tokens/tokenize.h"
#include "focus/evaluation/attention_spec.h"
#include "focus/evaluation/row.h"
#include "focus/models/model_files.h"
#include "optim/ranks.h"

namespace focus {

/// Preprocessing of a text whose tokens are separated by blanks.
enum class Detokenize { none, wikitext };
constexpr auto enum_names(Detokenize) {
  return std::array<std::string_view, 2>{"none", "wikitext"};
}

/// How texts are evaluated: the same for a command's options and a comparison's config.
struct EvalSettings {
  std::vector<std::string> attentions = {};
  std::string separator = {};
  Index context = 0, stride = 0, max_documents = 0, max_tokens = 0;
  bool against_dense = false, beyond_positions = false;
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
    f("context", context, "tokens per window; 0: 512, or the model's positions if fewer",
      {0, 1 << 22});
    f("stride", stride, "tokens from one window to the next; 0: half the context", {0, 1 << 22});
    f("max_documents", max_documents, "use only the first N documents; 0: all", {0, 1e9});
    f("max_tokens", max_tokens,
      "use only the first N tokens of each document, including special tokens before it; 0: all",
      {0, 1e12});
    f("against_dense", against_dense,
      "compare each row with dense attention on the same tokens: KL(dense || row), and the mean "
      "difference in nats with its standard error over tokens");
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
  bool counts_at(Index i) const {
    return counts.empty() || counts[static_cast<std::size_t>(i)] != 0;
  }
  /// Tokens that are scored: the first has nothing before it to be predicted from.
  Index scored() const;
};

/// Tokenizes files (.txt, .jsonl, packed ones too) or folders of them, one stream for each document
/// or line of JSONL, of which the tokens are scored that a training's loss is of. `bytes` and
/// `words` are those of the tokens that are left and scored, or those of the text as it was where
/// it is detokenized.
std::vector<EvalText> read_texts(const LoadedModel& model, const std::vector<std::string>& paths,
                                 const EvalSettings& settings = {});

struct Score {
  double nats = 0;  // sum of -log p over the scored tokens
  std::int64_t tokens = 0;
  std::int64_t bytes = 0, words = 0;
  // Against dense attention on the same tokens, where asked for: sums over the scored tokens of
  // KL(dense || this), of the difference of -log p and of its square.
  bool has_dense = false;
  double kl = 0, difference = 0, difference_squares = 0;

  /// Means, and the standard error of the mean difference, in nats per token.
  double mean_kl() const { return kl / static_cast<double>(tokens); }
  double mean_difference() const { return difference / static_cast<double>(tokens); }
  double difference_error() const;
  double nats_per_token() const;
  double perplexity() const;
  double bits_per_byte() const;
  /// By word and by byte, whatever the tokens are: comparable between tokenizers. NaN where nothing
  /// was counted.
  double word_perplexity() const;
  double byte_perplexity() const;
  Score& operator+=(const Score& other);
};

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

/// Scored tokens one by one: -log p, how many tokens of its window precede each, and which of
/// all tokens of the texts, one after the other, it is.
struct TokenLosses {
  std::vector<double> nats;
  std::vector<Index> before, token;
  Index tokens = 0;  // of the texts so far
};

/// What an evaluation does beside its figures, and who shares it.
struct EvalPass {
  ShareDone progress = {};
  /// Shared by rows of the same model, texts and settings, for against_dense.
  DenseReference* dense = nullptr;
  /// Each token's loss is appended, text after text.
  TokenLosses* losses = nullptr;
  /// Each of them evaluates the same, computes its share of the windows, and has all figures in the
  /// end: those of one process, bit for bit.
  Ranks* ranks = &one_process();
};

/// Perplexity by the strided config of transformers' documentation: windows of `context` tokens
/// every `stride`; each scores what none before has, but for the first token of all. Where a text
/// has a window_start, a window is that and up to `context` - 1 tokens. With the attention that the
/// decoder has; against_dense runs it with its own, too, or takes what `pass.dense` has kept of
/// that.
Score evaluate(Decoder& decoder, std::span<const EvalText> texts, const EvalSettings& settings,
               const EvalPass& pass = {});
inline Score evaluate(Decoder& decoder, const EvalText& text, const EvalSettings& settings,
                      const EvalPass& pass = {}) {
  return evaluate(decoder, std::span(&text, 1), settings, pass);
}

/// One attention over all texts. `settings` say context and stride.
Row evaluate(LoadedModel& model, const AttentionSpec& attention, std::span<const EvalText> texts,
             const EvalSettings& settings, const EvalPass& pass = {});

}  // namespace focus
