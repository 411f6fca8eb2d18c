#include "bench/cases.h"
#include "data/synthetic/far_corpus.h"
#include "data/tokenizers/tokenizer.h"
#include "optim/adamw.h"

namespace focus::bench {
namespace {

/// One AdamW step on a single matrix: p, its gradient and two moments are read, three are written.
void add_adamw(Index rows, Index cols) {
  add_case(fmt::format("adamw/parameters:{}", rows * cols), [=] {
    Variable parameter = random_tensor({rows, cols}, 1);
    parameter.set_requires_grad(true);
    parameter.set_grad(random_tensor({rows, cols}, 2));
    auto optimizer = std::make_shared<AdamW>(NamedParameters{{"weight", parameter}}, OptimConfig{});
    return Case{.run = [=] { optimizer->step(1e-3); },
                .bytes = 7.0 * static_cast<double>(rows * cols) * sizeof(Real)};
  });
}

/// A small tokenizer of each kind on the built-in text; the bytes are those of the text.
void add_tokenizer(const std::string& folder) {
  add_case("tokenizer/" + folder, [=] {
    const std::shared_ptr<const Tokenizer> tokenizer =
        load_tokenizer(std::string(FOCUS_SOURCE_DIR "/tests/golden/tokenizers/") + folder);
    const std::string text = joined_texts(generate_far_documents({.documents = 100}), "\n\n");
    return Case{.run = [=] { tokenizer->encode(text); },
                .bytes = static_cast<double>(text.size()),
                .tokens = static_cast<double>(tokenizer->encode(text).size())};
  });
}

}  // namespace

void add_other_cases() {
  add_adamw(192, 776);    // what a retrofit of GPT-2 124M trains
  add_adamw(4096, 4096);  // far larger than the caches
  add_tokenizer("gpt2_style");
  add_tokenizer("llama2_style");
  add_tokenizer("sentencepiece_bpe");
}

}  // namespace focus::bench
