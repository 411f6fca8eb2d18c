// Numbers rounded into blocks as gguf-py's quantize() rounds them: tests/golden/blocks.
#include <cmath>

#include "autograd/gemm/block_formats.h"
#include "data/tensors/safetensors.h"
#include "tests/support/compare.h"
#include "tests/support/golden.h"

namespace focus {
namespace {

TEST(BlockRoundingGolden, HasTheBitsOfGgufPy) {
  const auto files = golden_entries("blocks", ".safetensors");
  if (files.empty()) GTEST_SKIP() << "no blocks/*.safetensors here";
  for (const std::string& name : files) {
    const SafetensorsFile file(golden_folder() / name);
    const Tensor numbers = file.read("numbers");
    for (const Dtype format : kRoundedFormats) {
      std::vector<std::byte> wanted, found;
      file.read_raw(name_of(format), wanted);
      pack(numbers.span(), format, found);
      ASSERT_EQ(found.size(), wanted.size());
      const std::size_t block = bytes_of(format, block_numbers(format));
      for (std::size_t at = 0; at < found.size(); at += block)
        EXPECT_TRUE(std::equal(found.begin() + static_cast<std::ptrdiff_t>(at),
                               found.begin() + static_cast<std::ptrdiff_t>(at + block),
                               wanted.begin() + static_cast<std::ptrdiff_t>(at)))
            << name << " " << name_of(format) << " block " << at / block;
    }
  }
}

TEST(BlockRounding, IsNearTheNumbers) {
  const std::map<Dtype, double> steps = {{Dtype::q8_0, 254},
                                         {Dtype::q4_0, 15},
                                         {Dtype::q4_1, 15},
                                         {Dtype::q5_0, 31},
                                         {Dtype::q5_1, 31}};
  const Tensor numbers = randn({64, 96}, 3);
  for (const Dtype format : kRoundedFormats) {
    std::vector<std::byte> bytes;
    pack(numbers.span(), format, bytes);
    const Tensor rounded = to_tensor(bytes, format, numbers.shape());
    for (Index b = 0; b < numbers.size(); b += 32) {
      double most = 0;
      for (Index i = b; i < b + 32; ++i) most = std::max(most, std::abs(double(numbers[i])));
      for (Index i = b; i < b + 32; ++i)
        EXPECT_NEAR(rounded[i], numbers[i], 2.1 * most / steps.at(format)) << name_of(format);
    }
  }
}

TEST(BlockRounding, WhatNoBlockHoldsIsNoNumberAfterwards) {
  for (const Dtype format : kRoundedFormats)
    for (const Real bad : {Real(NAN), Real(INFINITY), Real(-INFINITY), Real(3e38)}) {
      Tensor numbers = Tensor::full({1, 64}, Real(0.5));
      numbers.data()[37] = bad;
      std::vector<std::byte> bytes;
      pack(numbers.span(), format, bytes);
      const Tensor rounded = to_tensor(bytes, format, numbers.shape());
      EXPECT_EQ(count_nonfinite(rounded.span().first(32)), 0) << name_of(format);
      EXPECT_GT(count_nonfinite(rounded.span().last(32)), 0) << name_of(format) << " " << bad;
    }
  for (const Dtype format : kRoundedFormats) {  // a scale that has no inverse
    Tensor numbers = Tensor::full({1, 32}, Real(1e-40));
    std::vector<std::byte> bytes;
    pack(numbers.span(), format, bytes);
    EXPECT_EQ(count_nonfinite(to_tensor(bytes, format, numbers.shape())), 0) << name_of(format);
  }
}

TEST(BlockRounding, RefusesOtherFormatsAndPartsOfBlocks) {
  const Tensor numbers = Tensor::full({256}, Real(1));
  std::vector<std::byte> bytes;
  for (const Dtype format : {Dtype::q4_k, Dtype::iq4_nl, Dtype::other})
    EXPECT_THROW(pack(numbers.span(), format, bytes), std::invalid_argument) << name_of(format);
  EXPECT_THROW(pack(numbers.span().first(40), Dtype::q8_0, bytes), std::invalid_argument);
}

}  // namespace
}  // namespace focus
