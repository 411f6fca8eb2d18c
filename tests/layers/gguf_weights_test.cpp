#include <gmock/gmock.h>

#include "layers/gguf_settings.h"
#include "layers/weights.h"
#include "tests/support/compare.h"
#include "tests/support/map_source.h"
#include "tests/support/random.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace focus {
namespace {

using testing::HasSubstr;
using Tensors = std::map<std::string, Tensor>;

class GgufTensors : public MapSource {
 public:
  using MapSource::MapSource;
  TensorNaming naming() const override { return TensorNaming::gguf; }
};

/// Rows as llama.cpp's converter moves them: i and i + d/2 of each head to 2i and 2i + 1.
Tensor in_pairs(const Tensor& rows, Index head) {
  Tensor moved(rows.shape());
  const Index width = rows.size() / rows.dim(0);
  for (Index r = 0; r < rows.dim(0); ++r) {
    const Index first = r / head * head, in_head = r % head, half = head / 2;
    const Index to = first + (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1);
    std::copy_n(rows.data() + r * width, width, moved.data() + to * width);
  }
  return moved;
}

Tensor stacked(const std::vector<Tensor>& parts) {
  Index rows = 0;
  for (const Tensor& part : parts) rows += part.dim(0);
  Tensor whole(parts[0].shape().with(0, rows));
  Real* to = whole.data();
  for (const Tensor& part : parts) to = std::copy_n(part.data(), part.size(), to);
  return whole;
}

Tensor plus(Tensor tensor, Real number) {
  Tensor sum(tensor.shape());
  std::ranges::transform(tensor.span(), sum.data(), [=](Real x) { return x + number; });
  return sum;
}

/// Quarters, so that 1 may be added and taken off again without rounding.
Tensor quarters(const Shape& shape, std::uint64_t seed) {
  Tensor tensor = randn(shape, seed);
  for (Real& x : tensor.span()) x = std::round(4 * x) / 4 + Real(0);  // no -0
  return tensor;
}

Decoder model_of(const ModelConfig& config) {
  Decoder decoder(config);
  std::uint64_t seed = 1;
  for_each_parameter(decoder, [&](const std::string&, Variable& p) {
    p.mutable_value() = quarters(p.shape(), ++seed);
  });
  return decoder;
}

/// What a file of that model holds, by the words of gguf.md; `fused`: q, k and v in one.
Tensors gguf_tensors(Decoder& decoder, bool fused) {
  const ModelConfig& c = decoder.config();
  const std::map<std::string, std::string> names = {{"embed_tokens", "token_embd"},
                                                    {"embed_positions", "position_embd"},
                                                    {"norm", "output_norm"},
                                                    {"lm_head", "output"},
                                                    {"input_layernorm", "attn_norm"},
                                                    {"post_attention_layernorm", "ffn_norm"},
                                                    {"attention_out_norm", "post_attention_norm"},
                                                    {"mlp_out_norm", "post_ffw_norm"},
                                                    {"self_attn.q_norm", "attn_q_norm"},
                                                    {"self_attn.k_norm", "attn_k_norm"},
                                                    {"self_attn.q_proj", "attn_q"},
                                                    {"self_attn.k_proj", "attn_k"},
                                                    {"self_attn.v_proj", "attn_v"},
                                                    {"self_attn.o_proj", "attn_output"},
                                                    {"mlp.gate_proj", "ffn_gate"},
                                                    {"mlp.up_proj", "ffn_up"},
                                                    {"mlp.down_proj", "ffn_down"}};
  const bool llama = find_family(c.model_type, "test").gguf.rotary_pairs;
  Tensors all;
  for_each_parameter(decoder, [&](const std::string& name, Variable& p) {
    const std::size_t dot = name.rfind('.');
    std::string module = name.substr(0, dot), layer;
    if (module.starts_with("layers.")) {
      const std::size_t end = module.find('.', 7);
      layer = "blk." + module.substr(7, end - 7) + ".";
      module = module.substr(end + 1);
    }
    Tensor tensor = p.value();
    if (llama && (module == "self_attn.q_proj" || module == "self_attn.k_proj"))
      tensor = in_pairs(tensor, c.head_dim);
    if (c.norm_weight_offset == 1 && name.ends_with("norm.weight")) tensor = plus(tensor, 1);
    all[layer + names.at(module) + name.substr(dot)] = tensor;
  });
  for (Index i = 0; c.model_type == "phi3" && i < c.num_hidden_layers; ++i) {
    const std::string layer = fmt::format("blk.{}.ffn_", i);
    const Tensor gate = all.extract(layer + "gate.weight").mapped();
    all[layer + "up.weight"] = stacked({gate, all.at(layer + "up.weight")});
  }
  for (Index i = 0; fused && i < c.num_hidden_layers; ++i)
    for (const std::string kind : {".weight", ".bias"}) {
      const std::string layer = fmt::format("blk.{}.attn_", i);
      if (!all.contains(layer + "q" + kind)) continue;
      std::vector<Tensor> parts;
      for (const char* part : {"q", "k", "v"})
        parts.push_back(all.extract(layer + part + kind).mapped());
      all[layer + "qkv" + kind] = stacked(parts);
    }
  return all;
}

TEST(GgufWeights, AreThoseOfTheModel) {
  for (const std::string& type : family_names())
    for (const bool fused : {false, true}) {
      ModelConfig config = tiny_config(type);
      Decoder original = model_of(config);
      const GgufTensors source(gguf_tensors(original, fused));
      Decoder loaded(config);
      load_weights(loaded, source);
      expect_same_weights(original, loaded);

      // What passes through is published as that of a folder is.
      Tensors streamed;
      stream(config, source,
             [&](const std::string& name, const Tensor& tensor) { streamed[name] = tensor; });
      Decoder again(config);
      load_weights(again, MapSource(streamed));
      expect_same_weights(original, again);
    }
}

TEST(GgufWeights, FrozenMatricesGiveTheSameBits) {
  for (const std::string& type : family_names())
    for (const bool fused : {false, true}) {
      const ModelConfig config = tiny_config(type);
      Decoder original = model_of(config), frozen(config);
      for_each_parameter(original, [&](const std::string& name, Variable& p) {
        if (!name.ends_with("norm.weight"))
          for (Real& x : p.mutable_value().span()) x /= 8;
      });
      load_weights(frozen, GgufTensors(gguf_tensors(original, fused)), Precision::float32);
      const std::vector<std::int32_t> ids = {1, 5, 2, 8, 30, 7, 7, 11, 0, 3, 12, 19};
      const NoGrad guard;
      EXPECT_TRUE(same_bits(original.logits(original.hidden_states(ids, 1)).value(),
                            frozen.logits(frozen.hidden_states(ids, 1)).value()))
          << type;
    }
}

TEST(GgufWeights, NamesWhatIsWrong) {
  const ModelConfig config = tiny_config("llama");
  Decoder original = model_of(config);
  const Tensors sound = gguf_tensors(original, false);
  const auto error = [&](Tensors tensors) {
    return error_of([&] {
      Decoder decoder(config);
      load_weights(decoder, GgufTensors(std::move(tensors)));
    });
  };
  EXPECT_EQ(error(sound), "");
  const auto error_with = [&](const std::string& name, const Shape& shape) {
    Tensors tensors = sound;
    tensors[name] = Tensor(shape);
    return error(std::move(tensors));
  };
  EXPECT_THAT(error_with("blk.0.attn_sinks.weight", {4}),
              HasSubstr("tensor blk.0.attn_sinks.weight is not part of a llama"));
  EXPECT_EQ(error_with("rope_freqs.weight", {3}), "");  // read with the settings
  EXPECT_THAT(error_with("blk.0.ffn_up.weight", {24, 40}),
              HasSubstr("tensor blk.0.ffn_up.weight has shape [24, 40]"));
  Tensors missing = sound;
  missing.erase("blk.1.attn_k.weight");
  EXPECT_THAT(error(missing), HasSubstr("tensor blk.1.attn_k.weight is missing"));
}

}  // namespace
}  // namespace focus
