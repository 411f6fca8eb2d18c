#include "layers/weights.h"
#include "tests/support/compare.h"
#include "tests/support/map_source.h"
#include "tests/support/random.h"
#include "tests/support/tiny_model.h"

// A decoder whose matrices are stored in bf16.
namespace focus {
namespace {

const std::vector<std::string> kBf16BaseTypes = family_names();

/// The first norm of the first layer.
Variable& first_norm(Decoder& decoder) {
  Block& block = decoder.layers()[0];
  return block.input_layernorm.weight.defined() ? block.input_layernorm.weight
                                                : block.attention_out_norm.weight;
}

Decoder decoder_in_bf16(const std::string& type) {
  Decoder decoder = tiny_decoder(type);
  freeze_matrices(decoder, Precision::bf16);
  return decoder;
}

TEST(Bf16Decoder, MatricesGoAndVectorsStay) {
  for (const std::string& type : kBf16BaseTypes) {
    Decoder before = tiny_decoder(type), decoder = decoder_in_bf16(type);
    EXPECT_EQ(count_parameters(decoder), count_parameters(before));
    int matrices = 0;
    for_each_parameter(decoder, [&](const std::string& name, const Weight& p) {
      EXPECT_EQ(p.is_frozen_matrix(), p.shape().rank() == 2) << name;
      matrices += p.is_frozen_matrix();
    });
    const ModelConfig& c = decoder.config();
    EXPECT_EQ(matrices, 1 + c.learned_positions + !c.tie_word_embeddings + 3 * (6 + c.gated_mlp));
  }
}

TEST(Bf16Decoder, LogitsAndLossStayClose) {
  const auto ids = random_ids(60, 37, 1);
  for (const std::string& type : kBf16BaseTypes) {
    const Decoder exact = tiny_decoder(type), decoder = decoder_in_bf16(type);
    const Tensor wanted = exact.logits(exact.hidden_states(ids, 2)).value();
    const Tensor logits = decoder.logits(decoder.hidden_states(ids, 2)).value();
    // bf16 keeps 8 bits: a rounding is off by up to 2^-9 of a number, a sum of many by less.
    const double error = relative_difference(logits, wanted);
    // Norms after the sub-layers blow small outputs up, and their errors, and the cap cuts the
    // largest logits, which the error is measured against.
    EXPECT_LE(error, type == "gemma2" ? 1e-1 : 3e-2) << type;
    EXPECT_GE(error, 1e-5) << type << ": nothing was rounded";
    EXPECT_NEAR(decoder.loss(ids, 2).value()[0], exact.loss(ids, 2).value()[0], 1e-2) << type;
  }
}

TEST(Bf16Decoder, GradientsReachWhatIsTrained) {
  const auto ids = random_ids(40, 37, 1);
  for (const std::string& type : kBf16BaseTypes) {
    Decoder exact = tiny_decoder(type), decoder = decoder_in_bf16(type);
    const auto gradient = [&](Decoder& model) {
      Variable& trained = first_norm(model);
      trained.set_requires_grad(true);
      backward(model.loss(ids, 1));
      return trained.grad();
    };
    EXPECT_LE(relative_difference(gradient(decoder), gradient(exact)), 5e-2) << type;
  }
}

TEST(Bf16Decoder, BitsDoNotDependOnThreads) {
  const auto ids = random_ids(300, 37, 1);
  for (const std::string& type : kBf16BaseTypes) {
    Decoder decoder = decoder_in_bf16(type);
    Variable& trained = first_norm(decoder);
    expect_same_bits_for_any_threads(type, [&] {
      trained.set_requires_grad(false);
      trained.set_requires_grad(true);
      const Variable loss = decoder.loss(ids, 3);
      backward(loss);
      return std::vector<Tensor>{loss.value(), trained.grad()};
    });
  }
}

/// What an action on a frozen decoder is refused with.
template <class F>
std::string refusal(F&& action) {
  try {
    action();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "nothing";
}

TEST(Bf16Decoder, CannotBeTrainedOrPublished) {
  Decoder decoder = decoder_in_bf16("gpt2");
  EXPECT_EQ(refusal([&] { set_requires_grad(decoder, true); }),
            "set_requires_grad: the weight embed_tokens.weight [37, 24] is stored in bf16 and "
            "therefore frozen");
  set_requires_grad(decoder, false);
  EXPECT_EQ(refusal([&] { published(decoder); }),
            "value: the weight embed_tokens.weight [37, 24] is frozen, as it is stored in bf16; "
            "load the model with its weights trainable");
}

TEST(Bf16Decoder, IsLoadedMatrixByMatrix) {
  for (const std::string& type : kBf16BaseTypes) {
    Decoder original = tiny_decoder(type), frozen = decoder_in_bf16(type);
    Decoder loaded(original.config());
    load_weights(loaded, MapSource(published(original)), Precision::bf16);
    const auto ids = random_ids(20, 37, 1);
    EXPECT_TRUE(
        same_bits(loaded.hidden_states(ids, 1).value(), frozen.hidden_states(ids, 1).value()))
        << type;
  }
}

}  // namespace
}  // namespace focus
