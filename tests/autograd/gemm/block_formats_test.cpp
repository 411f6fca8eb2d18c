#include "autograd/gemm/block_formats.h"

#include "autograd/gemm/frozen_matrix.h"
#include "autograd/gemm/gemm.h"
#include "autograd/ops.h"
#include "autograd/simd/kernels.h"
#include "tests/support/gradcheck.h"
#include "tests/support/stored_blocks.h"

// What lies in GGML's blocks has the numbers of GGML's formulas, and products with it have the bits
// of the matrix that was widened before.
namespace focus {
namespace {

bool same_numbers(std::span<const Real> a, std::span<const Real> b) {
  return std::ranges::equal(std::as_bytes(a), std::as_bytes(b));
}

TEST(BlockFormats, AllKernelsHaveTheNumbersOfTheFormulas) {
  for (const NumberFormat format : kBlockFormats) {
    constexpr Index kNumbers = 64 * 256;
    const auto bytes = random_blocks(format, kNumbers, 7);
    const auto wanted = block_numbers_of(format, bytes.data(), kNumbers);
    for (const simd::BlockKernels* kernels : simd::usable_block_kernels()) {
      std::vector<Real> found(kNumbers);
      widen_blocks(format, bytes.data(), 0, kNumbers, found.data(), *kernels);
      EXPECT_TRUE(same_numbers(found, wanted)) << name_of(format) << " " << kernels->name;
    }
  }
}

TEST(BlockFormats, SumsHaveTheBitsOfARowThatWasWidened) {
  for (const simd::BlockKernels* blocks : simd::usable_block_kernels()) {
    const auto& all = simd::usable_kernels();
    // Those of AMX and VNNI are AVX-512's.
    const auto same_name = std::ranges::find_if(
        all, [&](const simd::Kernels* k) { return std::string_view(k->name) == blocks->name; });
    const simd::Kernels* kernels = same_name != all.end() ? *same_name : all.front();
    for (const NumberFormat format : kBlockFormats) {
      for (const Index count : {256, 512, 768, 1536}) {
        const auto bytes = random_blocks(format, count, 11);
        std::vector<Real> row(count);
        widen_blocks(format, bytes.data(), 0, count, row.data(), *blocks);
        const Tensor x = randn({count}, 5);
        const simd::DotBlocks dot = dot_of_blocks(format, count, *blocks);
        ASSERT_EQ(dot != nullptr, sizeof(Real) == sizeof(float));
        if (dot == nullptr) continue;
        const auto* at = reinterpret_cast<const std::uint8_t*>(bytes.data());
        const Real found = dot(at, count / block_numbers(format), x.data());
        EXPECT_EQ(found, kernels->dot_row(x.data(), row.data(), count))
            << name_of(format) << " " << kernels->name << " " << count;
      }
    }
  }
}

TEST(BlockFormats, APartMayBeginAndEndWithinABlock) {
  for (const NumberFormat format : kBlockFormats) {
    const auto bytes = random_blocks(format, 1024, 3);
    const auto all = block_numbers_of(format, bytes.data(), 1024);
    for (const auto& [first, count] : {std::pair<Index, Index>{0, 1024},
                                       {5, 0},
                                       {5, 7},
                                       {31, 2},
                                       {255, 300},
                                       {256, 256},
                                       {100, 700},
                                       {1023, 1}}) {
      std::vector<Real> found(count + 1, Real(77));
      widen_blocks(format, bytes.data(), first, count, found.data());
      EXPECT_TRUE(same_numbers(std::span(found).first(count), std::span(all).subspan(first, count)))
          << name_of(format) << " " << first << " + " << count;
      EXPECT_EQ(found.back(), 77) << "wrote beyond the end";
    }
  }
}

TEST(BlockFormats, RefusesWhatIsInNoBlocksAndPartsOfOne) {
  Real x = 0;
  EXPECT_THROW(widen_blocks(NumberFormat::f32, &x, 0, 1, &x), std::invalid_argument);
  const MatrixView view{.data = &x, .format = NumberFormat::q4_0};
  EXPECT_THROW(from_number(view, 16), std::invalid_argument);
}

const std::vector<BlockLayout> kBlockLayouts = {
    {}, {.run = 4, .runs = 3}, {.rotary_pairs = 4}, {.run = 4, .runs = 3, .rotary_pairs = 4}};

TEST(BlockFormats, ProductsHaveTheBitsOfTheWidenedMatrix) {
  const std::vector<std::array<Index, 3>> shapes = {
      {1, 40, 256}, {2, 84, 512}, {3, 12, 256}, {7, 300, 768}, {130, 44, 1280}, {200, 300, 256}};
  for (const NumberFormat format : kBlockFormats)
    for (const BlockLayout& layout : kBlockLayouts)
      for (const auto& [m, rows, cols] : shapes)
        expect_products_of_the_widened(
            stored_blocks(rows, cols, format, layout, 5), m,
            fmt::format("{}: {} x {} x {}, run {}, pairs {}", name_of(format), m, rows, cols,
                        layout.run, layout.rotary_pairs));
  for (const auto& [m, rows, cols] : std::vector<std::array<Index, 3>>{
           {1, 40, 32}, {2, 8, 96}, {5, 33, 160}, {9, 20, 576}, {130, 50, 288}})
    expect_products_of_the_widened(stored_blocks(rows, cols, NumberFormat::q5_1, {}, 5), m,
                                   fmt::format("{} x {} x {}", m, rows, cols));
}

TEST(BlockFormats, OtherFormsAreThoseOfTheWidenedMatrix) {
  const Tensor x = randn({9, 512}, 4);
  for (const NumberFormat format : kBlockFormats)
    for (const Precision precision : {Precision::float32, Precision::bf16}) {
      const Stored w = stored_blocks(40, 512, format, {.rotary_pairs = 8}, 9);
      const auto step = [&](const Weight& weight) {
        return value_and_gradients({x},
                                   [&](const Variables& v) { return linear(v[0], weight, {}); });
      };
      expect_same_bits(step(FrozenMatrix(w.view, nullptr, precision)),
                       step(FrozenMatrix(w.widened, precision)),
                       fmt::format("{} {}", name_of(format), name_of(precision)));
    }
}

TEST(BlockFormats, AMatrixTakesTheBytesOfItsBlocks) {
  const Stored w = stored_blocks(8, 256, NumberFormat::q4_k, {}, 9);
  EXPECT_EQ(FrozenMatrix(w.view, nullptr)->bytes(), 8u * 144);
  EXPECT_STREQ(name_of(FrozenMatrix(w.view, nullptr)->format()), "q4_k");
}

TEST(RotaryPairs, RowsAndVectorsAreInTheirOrderAgain) {
  // Heads of 6 rows: 0 1 2 3 4 5 of what is stored are 0 3 1 4 2 5.
  constexpr Index kPlaces[6] = {0, 2, 4, 1, 3, 5};
  for (const NumberFormat format : kStoredFormats) {
    Stored w = stored(12, 5, format, {}, 3);
    const Tensor as_stored = w.widened;
    w.view.rotary_pairs = 6;
    Tensor rows({12, 5});
    read_rows(w.view, 0, 12, rows.data());
    for (Index i = 0; i < 12; ++i)
      for (Index j = 0; j < 5; ++j)
        EXPECT_EQ(rows[i * 5 + j], as_stored[(i / 6 * 6 + kPlaces[i % 6]) * 5 + j])
            << name_of(format);
    // A bias is a matrix of one column.
    Stored bias = stored(12, 1, format, {.transposed = true}, 4);
    bias.view.rotary_pairs = 6;
    Tensor numbers({12});
    read_rows(bias.view, 0, 12, numbers.data());
    for (Index i = 0; i < 12; ++i)
      EXPECT_EQ(numbers[i], bias.widened[i / 6 * 6 + kPlaces[i % 6]]) << name_of(format);
    for (const Index m : {1, 40}) {
      Stored ordered = w;
      ordered.widened = rows;
      expect_products_of_the_widened(ordered, m, name_of(format));
    }
    const Weight frozen = FrozenMatrix(w.view, nullptr, Precision::bf16);
    const Tensor x = randn({3, 5}, 1);
    EXPECT_TRUE(same_bits(linear(Variable(x), frozen, {}).value(),
                          linear(Variable(x), FrozenMatrix(rows, Precision::bf16), {}).value()));
  }
}

}  // namespace
}  // namespace focus
