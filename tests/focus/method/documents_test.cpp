// Every attention over rows of several documents: each document as if it were alone.
#include "focus/method/documents.h"

#include <gtest/gtest.h>

#include "focus/adapters/mechanism.h"
#include "tests/support/compare.h"
#include "tests/support/packed_documents.h"
#include "tests/support/parity_grouping.h"
#include "tests/support/tiny_focus.h"

namespace focus {
namespace {

const std::vector<Index> kLengths = {20, 3, 41, 1, 30};

struct Case {
  std::string name;
  FocusConfig config;
  AttentionSpec mode;
};

std::vector<Case> cases() {
  using Kind = AttentionKind;
  const FocusConfig tokens = tiny_focus();
  FocusConfig parity = parity_config();
  parity.local_window = tokens.local_window;
  FocusConfig columns = tokens;
  FocusConfig keys = tiny_keys();
  columns.summary.block = keys.summary.block = 4;
  return {
      {"soft carried", tokens, {.kind = Kind::soft, .balance = Balance::carried}},
      {"soft sequence", tokens, {.kind = Kind::soft, .balance = Balance::sequence}},
      {"hard 1",
       tokens,
       {.kind = Kind::hard, .top_k = 1, .balance = Balance::sequence, .gate = HardGate::drop}},
      {"hard 2 keep", tokens, {.kind = Kind::hard, .top_k = 2, .gate = HardGate::keep}},
      {"soft with sinks", tokens, {.kind = Kind::soft, .summary = {.sinks = 2}}},
      {"hard 1 with sinks",
       tokens,
       {.kind = Kind::hard, .top_k = 1, .gate = HardGate::keep, .summary = {.sinks = 2}}},
      {"an added grouping, hard 1",
       parity,
       {.kind = Kind::hard, .top_k = 1, .gate = HardGate::drop}},
      {"summary of tokens", columns, {.kind = Kind::summary}},
      {"summary of keys", keys, {.kind = Kind::summary}},
      {"dense", tokens, {.kind = Kind::dense}},
  };
}

struct Result {
  Tensor out;
  std::map<std::string, Tensor> gradients;
  AttentionCounts counts;
};

Result run(const Case& c, bool packed, const char* family) {
  Decoder decoder = tiny_decoder(family);
  Rng rng(5);
  FocusModel focus(c.config, FocusShape::of(decoder.config()), rng);
  focus.set_trainable(true);
  focus.attach(decoder);
  focus.mode = c.mode;
  focus.start_counting();
  const Batch batch = packed_documents(kLengths, 37);
  const Variable hidden = packed ? hidden_of(decoder, batch) : hidden_alone(decoder, batch);
  Result result{.out = hidden.value(), .gradients = {}, .counts = focus.counts()};
  if (!hidden.requires_grad()) return result;
  backward(multiply(hidden, Variable(randn(hidden.shape(), 4))));
  focus.visit_parameters(
      [&](const std::string& name, Variable& p) { result.gradients[name] = p.grad(); });
  return result;
}

TEST(Documents, FocusSeesEachAlone) {
  for (const Case& c : cases())
    for (const char* family : {"gpt2", "gemma2"}) {
      SCOPED_TRACE(c.name + " on " + family);
      const Result packed = run(c, true, family), alone = run(c, false, family);
      EXPECT_LE(relative_difference(packed.out, alone.out), tolerance(2e-5, 1e-10));
      EXPECT_EQ(packed.counts.pairs.all, alone.counts.pairs.all);
      EXPECT_EQ(packed.counts.pairs.attended, alone.counts.pairs.attended);
      ASSERT_EQ(packed.gradients.size(), alone.gradients.size());
      for (const auto& [name, gradient] : packed.gradients) {
        if (!gradient.defined()) continue;
        EXPECT_LE(relative_difference(gradient, alone.gradients.at(name), 1e-2),
                  tolerance(1e-3, 1e-8))
            << name;
      }
    }
}

TEST(Documents, EveryMechanismSeesEachAlone) {
  const NoGrad guard;
  for (const AdapterKind& kind : adapter_kinds()) {
    if (!kind.is_attention() || kind.role == AdapterRole::focus) continue;
    Decoder decoder = tiny_decoder("gpt2");
    const auto mechanism = make_mechanism(kind.name, kind.defaults, decoder.config());
    mechanism->attach(decoder);
    const Batch batch = packed_documents(kLengths, 37);
    EXPECT_LE(relative_difference(hidden_of(decoder, batch).value(),
                                  hidden_alone(decoder, batch).value()),
              tolerance(2e-5, 1e-10))
        << kind.name;
  }
}

TEST(Documents, WhatFollowsAWholeRowSaysSo) {
  const ModelConfig shape = tiny_config("gpt2");
  for (const AdapterKind& kind : adapter_kinds()) {
    if (!kind.is_trainable_mechanism()) continue;
    const bool separates = kind.name != "indexer" && kind.name != "routing_transformer";
    EXPECT_EQ(make_mechanism(kind.name, kind.defaults, shape)->separates_documents(), separates)
        << kind.name;
  }
}

TEST(Documents, FocusHasTheSameBitsForAnyThreads) {
  for (const Case& c : cases())
    expect_same_bits_for_any_threads(c.name, [&] {
      const Result result = run(c, true, "gpt2");
      std::vector<Tensor> all = {result.out};
      for (const auto& [name, gradient] : result.gradients)
        if (gradient.defined()) all.push_back(gradient);
      return all;
    });
}

}  // namespace
}  // namespace focus
