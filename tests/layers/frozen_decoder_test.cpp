#include <algorithm>
#include <limits>
#include <optional>

#include "layers/weights.h"
#include "tests/support/compare.h"
#include "tests/support/map_source.h"
#include "tests/support/random.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

// A decoder whose matrices stay as they are stored computes the bits of the one that is widened.
namespace focus {
namespace {

constexpr std::array<Dtype, 4> kStoredTypes = {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16};

std::map<std::string, Tensor> published_tensors(const ModelConfig& config) {
  Decoder original(config);
  Rng rng(1);
  initialise(original, rng);
  return published(original);
}

/// Loss, logits, and the gradient that reaches the last norm through the head and the first one
/// through every layer.
std::vector<Tensor> computed(Decoder& decoder, Index tokens, const ForwardContext& context = {}) {
  const auto ids = random_ids(tokens, 37, 1);
  set_requires_grad(decoder, false);
  std::vector<Variable> norms;
  for_each_parameter(decoder, [&]<class P>(const std::string& name, P& p) {
    if constexpr (std::is_same_v<P, Variable>)
      if (name.ends_with("norm.weight")) {
        p.set_requires_grad(true);
        norms.push_back(p);
      }
  });
  const Variable loss = decoder.loss(ids, 1, context);
  backward(loss);
  std::vector<Tensor> all = {loss.value()};
  for (const Variable& norm : norms) all.push_back(norm.grad());
  const NoGrad guard;
  all.push_back(decoder.logits(decoder.hidden_states(ids, 1)).value());
  return all;
}

TEST(FrozenDecoder, ComputesTheBitsOfTheWidenedOne) {
  for (const std::string& family : family_names())
    for (const Dtype type : kStoredTypes) {
      const MapSource source(published_tensors(tiny_config(family)), type);
      Decoder widened(tiny_config(family)), frozen(tiny_config(family));
      load_weights(widened, source);
      load_weights(frozen, source, Precision::float32);
      for_each_parameter(frozen, [&](const std::string& name, const Weight& p) {
        EXPECT_EQ(p.is_frozen_matrix(), p.shape().rank() == 2) << name;
        if (p.is_frozen_matrix()) {
          EXPECT_EQ(name_of(p.frozen_matrix()->format()), std::string(name_of(type)));
          EXPECT_EQ(p.bytes(), bytes_of(type, p.shape().size())) << name;
        }
      });
      // One token: rows of a matrix are gathered then instead of packed.
      for (const Index tokens : {60, 2}) {
        const auto wanted = computed(widened, tokens), found = computed(frozen, tokens);
        ASSERT_EQ(found.size(), wanted.size());
        for (std::size_t i = 0; i < found.size(); ++i)
          EXPECT_TRUE(same_bits(found[i], wanted[i]))
              << family << " in " << name_of(type) << ", " << tokens << " tokens, tensor " << i;
      }
    }
}

/// Rows that are whole blocks.
ModelConfig block_config(const std::string& family) {
  ModelConfig c = tiny_config(family);
  c.hidden_size = 32;
  c.head_dim = 8;
  c.intermediate_size = 64;
  if (c.rope.partial_rotary_factor < 1) c.rope.partial_rotary_factor = 0.75;
  return c;
}

TEST(FrozenDecoder, InQ8ItIsNearTheOneOfItsBlocks) {
  for (const std::string& family : family_names())
    for (const Dtype type : {Dtype::f32, Dtype::bf16}) {
      const ModelConfig config = block_config(family);
      const MapSource source(published_tensors(config), type);
      Decoder frozen(config), rounded(config), exact(config);
      load_weights(frozen, source, Precision::q8);
      load_weights(rounded, source);
      load_weights(exact, source);
      std::map<std::string, FrozenMatrix> matrices;
      for_each_parameter(frozen, [&](const std::string& name, const Weight& p) {
        EXPECT_EQ(p.is_frozen_matrix(), p.shape().rank() == 2) << name;
        if (!p.is_frozen_matrix()) return;
        matrices[name] = p.frozen_matrix();
        EXPECT_EQ(p.precision(), Precision::q8);
        EXPECT_EQ(p.bytes(), bytes_of(NumberFormat::q8_0, p.shape().size())) << name;
      });
      for_each_parameter(rounded, [&](const std::string& name, Variable& p) {
        const auto found = matrices.find(name);
        if (found == matrices.end()) return;
        for (Index i = 0; i < p.dim(0); ++i)
          found->second->row(i, p.mutable_value().data() + i * p.dim(1));
      });
      for (const Index tokens : {60, 2}) {
        const auto wanted = computed(rounded, tokens), found = computed(frozen, tokens),
                   before = computed(exact, tokens);
        ASSERT_EQ(found.size(), wanted.size());
        EXPECT_NEAR(found[0][0], wanted[0][0], 3e-2) << family << " in " << name_of(type);
        EXPECT_LE(relative_difference(found.back(), wanted.back()), 0.1)
            << family << " in " << name_of(type) << ", " << tokens << " tokens";
        EXPECT_FALSE(same_bits(found.back(), wanted.back())) << family << ": nothing was rounded";
        EXPECT_FALSE(same_bits(wanted.back(), before.back())) << family << ": nothing was rounded";
        EXPECT_NEAR(found[0][0], before[0][0], 5e-2) << family;  // activations are rounded too
      }
    }
}

TEST(FrozenDecoder, InQ8ItRefusesWhatIsNoNumberByName) {
  std::map<std::string, Tensor> tensors = published_tensors(block_config("gpt2"));
  const std::string c_attn = "transformer.h.1.attn.c_attn.weight";  // [in, q k v]
  ASSERT_TRUE(tensors.contains(c_attn));
  Tensor& fused = tensors[c_attn];
  const Index in = fused.dim(0), out = fused.dim(1) / 3;
  fused.data()[(in - 1) * 3 * out + out + 5] = std::numeric_limits<Real>::infinity();
  Decoder frozen(block_config("gpt2"));
  EXPECT_EQ(error_of([&] { load_weights(frozen, MapSource(tensors), Precision::q8); }),
            "q8: row 5 of the weight layers.1.self_attn.k_proj.weight holds NaN, infinity or a "
            "number too large for a block's scale: use float32");
}

TEST(StoredParameters, AreThoseOfTheModelInItsOrder) {
  for (const std::string& family : family_names()) {
    const MapSource source(published_tensors(tiny_config(family)));
    Decoder original = tiny_decoder(family);
    std::vector<std::pair<std::string, Tensor>> wanted;
    for_each_parameter(original, [&](const std::string& name, Variable& p) {
      wanted.emplace_back(name, p.value());
    });
    std::size_t i = 0, completed = 0;
    for_each_stored(tiny_config(family), source, [&](const StoredParameter& p) {
      ASSERT_LT(i, wanted.size());
      EXPECT_EQ(p.name, wanted[i].first);
      Tensor read(p.shape);
      p.read(read);
      EXPECT_TRUE(same_bits(read, wanted[i].second)) << family << " " << p.name;
      std::vector<Real> numbers;
      p.for_each_block([&](std::span<const Real> block) {
        numbers.insert(numbers.end(), block.begin(), block.end());
      });
      EXPECT_TRUE(std::ranges::equal(numbers, read.span())) << family << " " << p.name;
      completed += p.completes;
      ++i;
    });
    EXPECT_EQ(i, wanted.size());
    EXPECT_EQ(completed, source.tensors().size());
  }
}

// ---- bf16 --------------------------------------------------------------------------------------

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
  for (const std::string& type : family_names()) {
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
  for (const std::string& type : family_names()) {
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
  for (const std::string& type : family_names()) {
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
  for (const std::string& type : family_names()) {
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

TEST(Bf16Decoder, CannotBeTrainedOrPublished) {
  Decoder decoder = decoder_in_bf16("gpt2");
  EXPECT_EQ(error_of([&] { set_requires_grad(decoder, true); }),
            "set_requires_grad: the weight embed_tokens.weight [37, 24] is stored in bf16 and "
            "therefore frozen");
  set_requires_grad(decoder, false);
  EXPECT_EQ(error_of([&] { published(decoder); }),
            "value: the weight embed_tokens.weight [37, 24] is frozen, as it is stored in bf16; "
            "load the model with its weights trainable");
}

TEST(Bf16Decoder, IsLoadedMatrixByMatrix) {
  for (const std::string& type : family_names()) {
    Decoder original = tiny_decoder(type), frozen = decoder_in_bf16(type);
    Decoder loaded(original.config());
    load_weights(loaded, MapSource(published(original)), Precision::bf16);
    const auto ids = random_ids(20, 37, 1);
    EXPECT_TRUE(
        same_bits(loaded.hidden_states(ids, 1).value(), frozen.hidden_states(ids, 1).value()))
        << type;
  }
}

// ---- memory ------------------------------------------------------------------------------------

/// Tensors that lie in memory as those of a mapped file do.
class MappedSource final : public MapSource {
 public:
  explicit MappedSource(const std::map<std::string, Tensor>& tensors)
      : MapSource(tensors), tensors_(tensors) {}

 private:
  std::optional<TensorBytes> map_bytes(const TensorInfo& info) const override {
    const auto tensor = std::make_shared<const Tensor>(tensors_.at(info.name));
    return TensorBytes{std::as_bytes(tensor->span()), tensor};
  }

  std::map<std::string, Tensor> tensors_;
};

TEST(Memory, MatricesTakeNoneBeforeTheyHaveNumbers) {
  ModelConfig config = tiny_config("llama");
  config.hidden_size = 4096;
  config.num_attention_heads = config.num_key_value_heads = 32;
  config.head_dim = 128;
  config.intermediate_size = 11008;
  config.vocab_size = 32000;
  config.num_hidden_layers = 32;
  const std::size_t before = pool_stats().live;
  reset_pool_peak();
  Decoder decoder(config);  // of 7B, of which norms are all that is in memory
  EXPECT_LT(pool_stats().peak - before, 70 * 4096 * sizeof(Real));
  EXPECT_GT(count_parameters(decoder), Index{6'000'000'000});
  set_requires_grad(decoder, false);
  EXPECT_LT(pool_stats().peak - before, 70 * 4096 * sizeof(Real));
}

TEST(Memory, NothingIsReservedForMappedMatrices) {
  for (const std::string& family : family_names()) {
    const MappedSource source(published_tensors(tiny_config(family)));
    Index vectors = 0, matrices = 0;
    trim_pool();
    const std::size_t before = pool_stats().live, reserved = pool_stats().reserved;
    reset_pool_peak();
    Decoder decoder(tiny_config(family));
    load_weights(decoder, source, Precision::float32);
    for_each_parameter(decoder, [&](const std::string& name, const Weight& p) {
      EXPECT_EQ(p.is_frozen_matrix(), p.shape().rank() == 2) << name;
      if (p.is_frozen_matrix())
        matrices += p.shape().size();
      else
        vectors += 1;
    });
    const std::size_t most = static_cast<std::size_t>(vectors) * 512;  // a tiny one's buffer
    EXPECT_LE(pool_stats().peak - before, most) << family;
    EXPECT_LE(pool_stats().reserved - reserved, most) << family;
    EXPECT_GT(static_cast<std::size_t>(matrices) * sizeof(Real), 2 * most)
        << family << ": too tiny";
  }
}

TEST(Memory, WhatHasNoNumbersYetSaysSo) {
  const Decoder decoder(tiny_config("gpt2"));
  EXPECT_EQ(error_of([&] {
              decoder.logits(Variable(Tensor::zeros({1, 24})));
            }),
            "value: the weight [37, 24] has no values yet");
  Weight weight(Shape{2, 3});
  EXPECT_THROW(weight.freeze(Precision::float32), std::invalid_argument);
  EXPECT_EQ(weight.bytes(), 0u);
  weight.set_requires_grad(true);
  EXPECT_EQ(weight.value().shape(), (Shape{2, 3}));
  EXPECT_FALSE(weight.is_shape_alone());
}

/// Writes down when it is read ahead and multiplied.
class Noted final : public MatrixStorage {
 public:
  Noted(std::string name, FrozenMatrix matrix, std::vector<std::string>& notes)
      : MatrixStorage(matrix->shape()),
        name_(std::move(name)),
        matrix_(std::move(matrix)),
        notes_(notes) {}
  Precision precision() const override { return matrix_->precision(); }
  NumberFormat format() const override { return matrix_->format(); }
  std::size_t bytes() const override { return matrix_->bytes(); }
  void row(Index i, Real* to) const override { matrix_->row(i, to); }
  void gemm_nt(Index m, const Real* x, Real* y, Start start) const override {
    notes_.push_back("y " + name_);
    matrix_->gemm_nt(m, x, y, start);
  }
  void gemm(Index m, const Real* dy, Real* dx, Start start) const override {
    notes_.push_back("dx " + name_);
    matrix_->gemm(m, dy, dx, start);
  }
  void read_ahead() const override {
    notes_.push_back("ahead " + name_);
    matrix_->read_ahead();
  }

 private:
  std::string name_;
  FrozenMatrix matrix_;
  std::vector<std::string>& notes_;
};

TEST(ReadAhead, TellsOfTheNextLayerAndOnTheWayBackOfTheOneBefore) {
  using Words = std::vector<std::string>;
  const Words forth = {"ahead 0", "ahead 1", "y 0", "ahead 2", "y 1", "ahead head", "y 2"};
  const Words back = {"ahead 1", "dx 2", "ahead 0", "dx 1", "dx 0"};
  const Words back_again = {"ahead 1", "y 2", "dx 2", "ahead 0", "y 1", "dx 1", "y 0", "dx 0"};
  for (const bool recompute : {false, true})
    for (const std::string family : {"gpt2", "llama"}) {
      const MappedSource source(published_tensors(tiny_config(family)));
      Decoder usual(tiny_config(family)), ahead(tiny_config(family));
      for (Decoder* decoder : {&usual, &ahead}) load_weights(*decoder, source, Precision::float32);
      Words notes;
      const bool tied = ahead.config().tie_word_embeddings;
      for_each_parameter(ahead, [&]<class P>(const std::string& name, P& p) {
        if constexpr (std::is_same_v<P, Weight>) {
          if (name.ends_with("up_proj.weight"))  // layers.2.mlp.up_proj.weight
            p = FrozenMatrix(
                std::make_shared<const Noted>(name.substr(7, 1), p.frozen_matrix(), notes));
          if (name == (tied ? "embed_tokens.weight" : "lm_head.weight"))
            p = FrozenMatrix(std::make_shared<const Noted>("head", p.frozen_matrix(), notes));
        }
      });
      ahead.read_ahead();
      const ForwardContext context{.recompute_layers = recompute};
      const auto wanted = computed(usual, 60, context), found = computed(ahead, 60, context);
      ASSERT_EQ(found.size(), wanted.size());
      for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_TRUE(same_bits(found[i], wanted[i])) << family << ", tensor " << i;

      std::erase_if(notes,
                    [](const std::string& note) { return note == "y head" || note == "dx head"; });
      Words expected = forth;
      expected.insert(expected.end(), recompute ? back_again.begin() : back.begin(),
                      recompute ? back_again.end() : back.end());
      expected.insert(expected.end(), forth.begin(), forth.end());  // computed() ends with logits
      EXPECT_EQ(notes, expected) << family;
    }
}

}  // namespace
}  // namespace focus
