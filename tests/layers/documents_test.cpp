// Rows of several documents through a decoder of every family: each document as if it were alone.
#include "tests/support/compare.h"
#include "tests/support/random.h"
#include "tests/support/tiny_model.h"

namespace focus {
namespace {

struct Row {
  std::vector<std::int32_t> ids;
  std::shared_ptr<const std::vector<Index>> documents;
};

Row row_of(std::vector<Index> starts) {
  return {random_ids(starts.back(), 37, 3),
          std::make_shared<const std::vector<Index>>(std::move(starts))};
}

Variable together(const Decoder& decoder, const Row& row, ForwardContext context = {}) {
  context.documents = row.documents;
  return decoder.hidden_states(row.ids, 1, 0, context);
}

Variable one_by_one(const Decoder& decoder, const Row& row) {
  std::vector<Variable> parts;
  const std::span<const std::int32_t> ids(row.ids);
  for (std::size_t i = 0; i + 1 < row.documents->size(); ++i) {
    const Index begin = (*row.documents)[i], end = (*row.documents)[i + 1];
    parts.push_back(decoder.hidden_states(ids.subspan(begin, end - begin), 1));
  }
  return concatenate(parts);
}

TEST(Documents, EachIsAloneInEveryFamily) {
  const Row row = row_of({0, 5, 6, 40, 60});
  for (const std::string& family : family_names()) {
    const Decoder decoder = tiny_decoder(family);
    EXPECT_LE(relative_difference(together(decoder, row).value(), one_by_one(decoder, row).value()),
              tolerance(1e-5, 1e-12))
        << family;
  }
}

TEST(Documents, GradientsAreThoseOfEachAlone) {
  const Row row = row_of({0, 5, 6, 40});
  for (const char* family : {"gpt2", "llama", "gemma2"}) {
    std::vector<std::map<std::string, Tensor>> gradients;
    for (const bool packed : {true, false}) {
      Decoder decoder = tiny_decoder(family);
      set_requires_grad(decoder, true);
      const Variable hidden = packed ? together(decoder, row) : one_by_one(decoder, row);
      backward(multiply(hidden, Variable(randn(hidden.shape(), 4))));
      auto& of = gradients.emplace_back();
      for_each_parameter(decoder,
                         [&](const std::string& name, Variable& p) { of[name] = p.grad(); });
    }
    for (const auto& [name, gradient] : gradients[0]) {
      // A bias of keys adds the same to all of a query's scores: its gradient is what rounding
      // leaves.
      const bool is_zero = name.ends_with("k_proj.bias") && sizeof(Real) == sizeof(float);
      if (!gradient.defined() || is_zero) continue;
      EXPECT_LE(relative_difference(gradient, gradients[1][name], 1e-3), tolerance(1e-4, 1e-10))
          << family << " " << name;
    }
  }
}

TEST(Documents, MayBeLongerTogetherThanTheModelHasPositions) {
  const Row row = row_of({0, 100, 200, 300});
  for (const char* family : {"gpt2", "llama"})
    EXPECT_EQ(together(tiny_decoder(family), row).dim(1), 300) << family;
  EXPECT_THROW(together(tiny_decoder("gpt2"), row_of({0, 129})), std::invalid_argument);
}

TEST(Documents, RecomputedLayersGiveTheSameBits) {
  const Row row = row_of({0, 7, 30});
  std::vector<Tensor> gradients;
  for (const bool recompute : {false, true}) {
    Decoder decoder = tiny_decoder("llama");
    set_requires_grad(decoder, true);
    const Variable hidden = together(decoder, row, {.recompute_layers = recompute});
    backward(multiply(hidden, Variable(randn(hidden.shape(), 4))));
    gradients.push_back(decoder.layers()[0].self_attn.q_proj.weight.variable().grad());
  }
  EXPECT_TRUE(same_bits(gradients[0], gradients[1]));
}

TEST(Documents, RejectsStartsThatDoNotFit) {
  const Decoder decoder = tiny_decoder("llama");
  const std::vector<std::int32_t> ids = random_ids(8, 37, 3);
  const auto run = [&](std::vector<Index> starts, Index batch, Index first) {
    return decoder.hidden_states(
        ids, batch, first,
        {.documents = std::make_shared<const std::vector<Index>>(std::move(starts))});
  };
  EXPECT_THROW(run({0, 7}, 1, 0), std::invalid_argument);
  EXPECT_THROW(run({0, 4, 4, 8}, 1, 0), std::invalid_argument);
  EXPECT_THROW(run({0, 4, 8}, 2, 0), std::invalid_argument);
  EXPECT_THROW(run({0, 8}, 1, 3), std::invalid_argument);
}

}  // namespace
}  // namespace focus
