#include "data/gguf/gguf_writer.h"

#include <gtest/gtest.h>

#include "tests/support/compare.h"
#include "tests/support/random.h"
#include "tests/support/temp_folder.h"

namespace focus {
namespace {

namespace fs = std::filesystem;

class GgufWriterTest : public testing::Test {
 protected:
  static Tensor random(const Shape& shape, std::uint64_t seed) {
    Tensor tensor(shape);
    Rng rng(seed);
    for (Real& x : tensor.span()) x = static_cast<Real>(rng.normal());
    return tensor;
  }
  fs::path path() const { return folder_ / "model.gguf"; }
  bool is_empty() const { return fs::is_empty(folder_.path()); }

  TempFolder folder_;
};

TEST_F(GgufWriterTest, KeysComeBackInTheirTypes) {
  GgufKeys keys;
  keys.text("general.architecture", "llama");
  keys.text("empty", "");
  keys.u32("llama.block_count", 4000000000u);
  keys.f32("eps", 1e-5f);
  keys.flag("yes", true);
  keys.texts("tokens", std::vector<std::string>{"a", "", "\xE2\x96\x81the"});
  keys.i32s("types", std::vector<std::int32_t>{1, -2, 6});
  keys.f32s("scores", std::vector<float>{-1.5f, 0});
  keys.flags("pattern", {true, false, true});
  GgufWriter(path(), keys, {}).commit();
  const GgufSource source(path());
  const GgufMetadata& read = source.metadata();
  EXPECT_EQ(read.keys().size(), keys.count());
  EXPECT_EQ(read.text("general.architecture"), "llama");
  EXPECT_EQ(read.text("empty"), "");
  EXPECT_EQ(read.integer("llama.block_count"), 4000000000);
  EXPECT_EQ(read.number("eps"), 1e-5);
  EXPECT_EQ(read.flag("yes"), true);
  EXPECT_EQ(read.texts("tokens"), (std::vector<std::string>{"a", "", "\xE2\x96\x81the"}));
  EXPECT_EQ(read.integers("types"), (std::vector<std::int64_t>{1, -2, 6}));
  EXPECT_EQ(read.numbers("scores"), (std::vector<double>{-1.5, 0}));
  EXPECT_EQ(read.flags("pattern"), (std::vector<bool>{true, false, true}));

  // As another file has them, byte for byte.
  GgufKeys copied;
  for (const std::string& key : read.keys()) copied.copy(read, key);
  GgufWriter(folder_ / "copy.gguf", copied, {}).commit();
  const GgufSource copy(folder_ / "copy.gguf");
  for (const std::string& key : read.keys())
    EXPECT_TRUE(std::ranges::equal(copy.metadata().stored(key), read.stored(key))) << key;
}

TEST_F(GgufWriterTest, NumbersAreRoundedOnceAndLieWhereTheyMust) {
  // An odd number of bytes of F16, so that what follows needs padding.
  const Tensor vector = random({5}, 1), matrix = random({3, 64}, 2), cube = random({2, 3, 4}, 3);
  std::vector<AnnouncedTensor> announced = {
      {"odd", vector.shape(), Dtype::f16},   {"vector", vector.shape(), Dtype::f32},
      {"bf16", matrix.shape(), Dtype::bf16}, {"q8_0", matrix.shape(), Dtype::q8_0},
      {"cube", cube.shape(), Dtype::f16},    {"f32", matrix.shape(), Dtype::f32}};
  GgufWriter writer(path(), {}, announced);
  const std::map<std::string, Tensor> written = {{"odd", vector},  {"vector", vector},
                                                 {"bf16", matrix}, {"q8_0", matrix},
                                                 {"cube", cube},   {"f32", matrix}};
  for (const AnnouncedTensor& tensor : announced) writer.add(tensor.name, written.at(tensor.name));
  writer.commit();
  const GgufSource source(path());
  ASSERT_EQ(source.tensors().size(), announced.size());
  for (const AnnouncedTensor& tensor : announced) {
    const TensorInfo* info = source.find(tensor.name);
    ASSERT_NE(info, nullptr) << tensor.name;
    EXPECT_EQ(info->dtype, tensor.dtype) << tensor.name;
    std::vector<std::byte> packed, stored;
    pack(written.at(tensor.name).span(), tensor.dtype, packed);
    source.read_raw(tensor.name, stored);
    EXPECT_EQ(stored, packed) << tensor.name;
    EXPECT_EQ(source.read(tensor.name).shape(), tensor.shape) << tensor.name;
  }
  EXPECT_EQ(fs::file_size(path()) % 32, 0u);
}

TEST_F(GgufWriterTest, RefusesWhatLlamaCppDoesNotTakeAndLeavesNothing) {
  const Shape shape{2, 3};
  const auto refused = [&](std::vector<AnnouncedTensor> tensors) {
    EXPECT_THROW(GgufWriter(path(), {}, std::move(tensors)), std::invalid_argument);
    EXPECT_TRUE(is_empty());
  };
  refused({{"", shape, Dtype::f32}});
  refused({{std::string(64, 'x'), shape, Dtype::f32}});
  refused({{"twice", shape, Dtype::f32}, {"twice", shape, Dtype::f16}});
  refused({{"blocks", shape, Dtype::q8_0}});
  refused({{"five", Shape{1, 1, 1, 1, 2}, Dtype::f32}});
  refused({{"other", Shape{256}, Dtype::q4_k}});
  GgufKeys keys;
  keys.flag("key", true);
  EXPECT_THROW(keys.u32("key", 1), std::invalid_argument);
  EXPECT_THROW(keys.text("", ""), std::invalid_argument);
}

TEST_F(GgufWriterTest, TensorsComeAsAnnouncedAndAllOfThem) {
  const Tensor tensor = random({2, 3}, 1);
  {
    GgufWriter writer(path(), {},
                      {{"a", tensor.shape(), Dtype::f32}, {"b", tensor.shape(), Dtype::f32}});
    EXPECT_THROW(writer.add("b", tensor), std::invalid_argument);
  }
  {
    GgufWriter writer(path(), {}, {{"a", Shape{3, 2}, Dtype::f32}});
    EXPECT_THROW(writer.add("a", tensor), std::invalid_argument);
  }
  {
    GgufWriter writer(path(), {},
                      {{"a", tensor.shape(), Dtype::f32}, {"b", tensor.shape(), Dtype::f32}});
    writer.add("a", tensor);
    EXPECT_THROW(writer.commit(), std::invalid_argument);
  }
  {
    GgufWriter writer(path(), {}, {{"a", tensor.shape(), Dtype::f32}});
    writer.add("a", tensor);
    EXPECT_THROW(writer.add("a", tensor), std::invalid_argument);
    EXPECT_THROW(writer.commit([](const GgufSource&) { throw std::runtime_error("no"); }),
                 std::runtime_error);
  }
  EXPECT_TRUE(is_empty());
}

}  // namespace
}  // namespace focus
