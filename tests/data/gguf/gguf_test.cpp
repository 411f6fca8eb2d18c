#include "data/gguf/gguf.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>

#include "data/gguf/gguf_writer.h"
#include "tests/support/compare.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/random.h"
#include "tests/support/temp_folder.h"

namespace focus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

std::string error_of_gguf(const std::string& content) {
  const TempFolder folder;
  write_text(folder / "x.gguf", content);
  const std::string error = error_of([&] { GgufSource file(folder / "x.gguf"); });
  if (!error.empty()) {
    EXPECT_THAT(error, HasSubstr("x.gguf"));
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
    EXPECT_LT(error.size(), 500u);
  }
  return error;
}
std::string error_of_gguf(const GgufFile& file) { return error_of_gguf(file.bytes()); }
void expect_refused(const auto& file, const std::string& part) {
  EXPECT_THAT(error_of_gguf(file), HasSubstr(part));
}

/// A sound file of every type of value and two tensors.
GgufFile sound() {
  GgufFile file;
  file.text("general.architecture", "llama").u32("u32", 7).i32("i32", -7).f32("eps", 1e-5f);
  file.value("u8", 0, GgufFile::raw<std::uint8_t>(255))
      .value("i8", 1, GgufFile::raw<std::int8_t>(-1));
  file.value("u16", 2, GgufFile::raw<std::uint16_t>(65535));
  file.value("i16", 3, GgufFile::raw<std::int16_t>(-2)).flag("yes", true).flag("no", false);
  file.value("u64", 10, GgufFile::raw<std::uint64_t>(1ULL << 40));
  file.value("i64", 11, GgufFile::raw<std::int64_t>(-(1LL << 40)));
  file.value("f64", 12, GgufFile::raw(0.1)).texts("words", {"a", "", "caf\xc3\xa9"});
  file.numbers<float>("scores", 6, {-1, 2.5}).numbers<std::int32_t>("kinds", 5, {1, -2, 3});
  file.numbers<std::uint8_t>("flags", 7, {1, 0, 2}).texts("none", {});
  file.floats("b", {3, 2}, {1, 2, 3, 4, 5, 6});
  file.tensor("a", {32}, 8, std::string(34, '\0')).floats("c", {1}, {9});
  return file;
}

TEST(Gguf, ReadsWhatAFileSays) {
  const TempFolder folder;
  write_text(folder / "x.gguf", sound().bytes());
  const GgufSource file(folder / "x.gguf");
  const GgufMetadata& says = file.metadata();
  EXPECT_EQ(says.text("general.architecture"), "llama");
  EXPECT_EQ(says.integer("u8"), 255);
  EXPECT_EQ(says.integer("i8"), -1);
  EXPECT_EQ(says.integer("u16"), 65535);
  EXPECT_EQ(says.integer("i16"), -2);
  EXPECT_EQ(says.integer("u32"), 7);
  EXPECT_EQ(says.integer("i32"), -7);
  EXPECT_EQ(says.integer("u64"), std::int64_t{1} << 40);
  EXPECT_EQ(says.integer("i64"), -(std::int64_t{1} << 40));
  EXPECT_EQ(says.number("eps"), 1e-5);  // not float(1e-5)
  EXPECT_EQ(says.number("f64"), 0.1);
  EXPECT_EQ(says.number("u32"), 7.0);
  EXPECT_EQ(says.flag("yes"), true);
  EXPECT_EQ(says.flag("no"), false);
  EXPECT_THAT(*says.texts("words"), ElementsAre("a", "", "caf\xc3\xa9"));
  EXPECT_THAT(*says.numbers("scores"), ElementsAre(-1, 2.5));
  EXPECT_THAT(*says.integers("kinds"), ElementsAre(1, -2, 3));
  EXPECT_THAT(*says.flags("flags"), ElementsAre(true, false, true));
  EXPECT_TRUE(says.texts("none")->empty());
  EXPECT_FALSE(says.has("absent"));
  EXPECT_EQ(says.text("absent"), std::nullopt);
  EXPECT_TRUE(says.is_array("words"));
  EXPECT_FALSE(says.is_array("u32"));
}

TEST(Gguf, NamesAValueOfAnotherType) {
  const TempFolder folder;
  write_text(folder / "x.gguf", sound().bytes());
  const GgufSource file(folder / "x.gguf");
  const GgufMetadata& says = file.metadata();
  EXPECT_THAT(error_of([&] { says.text("u32"); }),
              HasSubstr("x.gguf: key 'u32' must be a string, not u32"));
  EXPECT_THAT(error_of([&] { says.integer("eps"); }), HasSubstr("must be an integer, not f32"));
  EXPECT_THAT(error_of([&] { says.flag("u8"); }), HasSubstr("must be a bool, not u8"));
  EXPECT_THAT(error_of([&] { says.number("yes"); }), HasSubstr("must be a number, not bool"));
  EXPECT_THAT(error_of([&] { says.integer("kinds"); }), HasSubstr("not an array of i32"));
  EXPECT_THAT(error_of([&] { says.texts("kinds"); }),
              HasSubstr("must be an array of string, not an array of i32"));
  EXPECT_THAT(error_of([&] { says.numbers("eps"); }), HasSubstr("must be an array of numbers"));
  GgufFile large;
  large.value("n", 10, GgufFile::raw(std::numeric_limits<std::uint64_t>::max()));
  write_text(folder / "x.gguf", large.bytes());
  EXPECT_THAT(error_of([&] { GgufSource(folder / "x.gguf").metadata().integer("n"); }),
              HasSubstr("larger than 2^63"));
}

TEST(Gguf, TensorsAreInTheOrderOfPyTorch) {
  const TempFolder folder;
  write_text(folder / "x.gguf", sound().bytes());
  const GgufSource file(folder / "x.gguf");
  ASSERT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_EQ(file.tensors()[0].dtype, NumberFormat::q8_0);
  EXPECT_EQ(file.tensors()[0].stored_as, "Q8_0");
  EXPECT_THAT(file.tensors()[1].shape, ElementsAre(2, 3));
  EXPECT_THAT(file.read("b").span(), ElementsAre(1, 2, 3, 4, 5, 6));
  const auto mapped = file.map("c");
  ASSERT_TRUE(mapped);
  EXPECT_EQ(mapped->bytes.size(), 4u);
  EXPECT_THAT(error_of([&] { file.read("missing"); }), HasSubstr("no tensor 'missing'"));
  EXPECT_TRUE(is_gguf(folder / "x.gguf"));
  EXPECT_FALSE(is_gguf(folder.path()));
  EXPECT_FALSE(is_gguf(folder / "absent.gguf"));
}

TEST(Gguf, TakesWhatLlamaCppTakes) {
  GgufFile old = sound();
  old.version = 2;
  EXPECT_EQ(error_of_gguf(old), "");
  EXPECT_EQ(error_of_gguf(GgufFile()), "");
  EXPECT_EQ(error_of_gguf(sound().bytes() + "more"), "");
  GgufFile odd;
  odd.floats("", {}, {1}).floats("none", {0, 4}, {}).text(std::string("k\0\xff", 3), "\xff");
  EXPECT_EQ(error_of_gguf(odd), "");
  odd.text(std::string(5000, 'k'), std::string(100000, 'v'));
  EXPECT_EQ(error_of_gguf(odd), "");
  EXPECT_EQ(error_of_gguf(GgufFile().floats(std::string(63, 'n'), {1}, {1})), "");
}

TEST(Gguf, AnAlignmentOfItsOwn) {
  for (const std::uint32_t alignment : {1u, 8u, 64u, 4096u}) {
    GgufFile file;
    file.alignment = alignment;
    file.u32("general.alignment", alignment);
    file.floats("a", {1}, {1}).tensor("h", {3}, 1, "abcdef").floats("b", {2}, {2, 3});
    const TempFolder folder;
    write_text(folder / "x.gguf", file.bytes());
    const GgufSource source(folder / "x.gguf");
    EXPECT_THAT(source.read("b").span(), ElementsAre(2, 3)) << alignment;
    const TensorBytes bytes = source.bytes("b");  // copied where it begins at an odd address
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes.bytes.data()) % alignof(float), 0u);
    EXPECT_THAT(to_tensor(bytes.bytes, NumberFormat::f32, {2}).span(), ElementsAre(2, 3));
  }
}

TEST(Gguf, RefusesVersions) {
  for (const std::uint32_t version : {0u, 1u, 4u}) {
    GgufFile file = sound();
    file.version = version;
    expect_refused(file, "GGUF file of version " + std::to_string(version));
  }
  GgufFile swapped;
  swapped.version = 0x03000000;
  expect_refused(swapped, "big-endian");
  expect_refused("GGML" + std::string(40, '\0'), "not a GGUF file");
  expect_refused("GGU", "it has 3 bytes");
  expect_refused("", "it has 0 bytes");
}

TEST(Gguf, RefusesEveryFileThatWasCutShort) {
  const std::string whole = sound().bytes();
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_NE(error_of_gguf(whole.substr(0, size)), "") << size;
}

TEST(Gguf, BelievesNoCount) {
  constexpr std::uint64_t kCounts[] = {1,          100,        1ULL << 30, 1ULL << 32,
                                       1ULL << 62, 1ULL << 63, ~0ULL - 1,  ~0ULL};
  for (const std::uint64_t more : kCounts) {
    GgufFile tensors = sound(), keys = sound();
    tensors.tensor_count = std::max<std::uint64_t>(more, 4);
    keys.key_count = std::max<std::uint64_t>(more, 40);
    EXPECT_NE(error_of_gguf(tensors), "") << more;
    EXPECT_NE(error_of_gguf(keys), "") << more;
    for (std::uint32_t type = 0; type < 13; ++type)
      EXPECT_NE(error_of_gguf(GgufFile().array("a", type, more, "")), "") << type;
    EXPECT_NE(error_of_gguf(GgufFile().value("a", 8, GgufFile::raw(more))), "") << more;
    GgufFile key;
    key.keys = GgufFile::raw(more);
    key.key_count = 1;
    EXPECT_NE(error_of_gguf(key), "") << more;
  }
}

TEST(Gguf, RefusesWrongKeys) {
  expect_refused(GgufFile().u32("", 1), "key number 1 is empty");
  expect_refused(GgufFile().u32("a", 1).text("a", "x"), "'a' appears twice");
  expect_refused(GgufFile().value("a", 13, std::string(16, '\0')),
                 "key 'a' has the unknown type 13");
  expect_refused(GgufFile().array("a", 13, 1, std::string(16, '\0')), "unknown type 13");
  expect_refused(GgufFile().array("a", 9, 1, std::string(16, '\0')), "array of arrays");
  for (const std::uint32_t alignment : {0u, 24u, 3u})
    expect_refused(GgufFile().u32("general.alignment", alignment), "must be a power of two");
  expect_refused(GgufFile().text("general.alignment", "32"), "must be an integer");
}

TEST(Gguf, RefusesWrongTensors) {
  const auto error = [](const std::vector<std::uint64_t>& dims, std::uint32_t type,
                        std::uint64_t offset = 0) {
    GgufFile file;
    file.info("t", dims, type, offset).data = std::string(4096, '\0');
    return error_of_gguf(file);
  };
  EXPECT_EQ(error({4}, 0), "");
  EXPECT_THAT(error({1, 1, 1, 1, 1}, 0), HasSubstr("5 dimensions"));
  EXPECT_THAT(error({1ULL << 63}, 0), HasSubstr("dimension of 9223372036854775808"));
  EXPECT_THAT(error({1ULL << 32, 1ULL << 31}, 0), HasSubstr("no model is that large"));
  EXPECT_THAT(error({1ULL << 32, 1ULL << 31, 0}, 0), HasSubstr("no model is that large"));
  EXPECT_THAT(error({1ULL << 62}, 0), HasSubstr("beyond the end of the file"));
  EXPECT_THAT(error({1ULL << 61, 3}, 8), HasSubstr("beyond the end of the file"));
  EXPECT_THAT(error({1025}, 0), HasSubstr("beyond the end of the file"));
  EXPECT_THAT(error({33}, 8), HasSubstr("rows of 33 values, which do not fill whole Q8_0 blocks"));
  EXPECT_THAT(error({32, 8}, 12), HasSubstr("Q4_K blocks of 256"));
  EXPECT_THAT(error({4}, 0, 1), HasSubstr("declared at offset 1"));
  EXPECT_THAT(error({4}, 0, 32), HasSubstr("declared at offset 32"));
  EXPECT_THAT(error({4}, 0, ~0ULL - 31), HasSubstr("declared at offset"));
  expect_refused(GgufFile().floats("t", {1}, {1}).floats("t", {1}, {2}),
                 "tensor 't' appears twice");
  expect_refused(GgufFile().floats(std::string(64, 'n'), {1}, {1}), "a name of 64 bytes");
  GgufFile overlapping;
  overlapping.floats("a", {9}, std::vector<float>(9)).info("b", {1}, 0, 32);
  expect_refused(overlapping, "the one before it ends at 64");
}

TEST(Gguf, RefusesTypesByName) {
  for (const GgmlType& type : ggml_types()) {
    GgufFile file;
    file.info("t", {256}, type.number, 0).data = std::string(4096, '\0');
    const std::string error = error_of_gguf(file);
    if (type.format == NumberFormat::other)
      EXPECT_THAT(error, HasSubstr(std::string("is stored as ") + type.name + ","));
    else
      EXPECT_EQ(error, "");
  }
  for (const std::uint32_t unknown : {43u, 1000u, ~0u}) {
    GgufFile file;
    file.info("t", {256}, unknown, 0).data = std::string(4096, '\0');
    expect_refused(file, "unknown type " + std::to_string(unknown));
  }
}

/// Parts of a split model, as files of a folder.
class GgufParts : public testing::Test {
 protected:
  static GgufFile part(std::uint16_t number, std::uint16_t count, std::int32_t tensors,
                       const std::string& name) {
    GgufFile file;
    file.value("split.no", 2, GgufFile::raw(number));
    file.value("split.count", 2, GgufFile::raw(count)).i32("split.tensors.count", tensors);
    file.floats(name, {1}, {static_cast<float>(number)});
    return file;
  }
  void write(const std::string& name, const GgufFile& file) {
    write_text(folder_ / name, file.bytes());
  }
  void SetUp() override {
    GgufFile first = part(0, 3, 3, "c");
    first.text("general.architecture", "llama");
    write("m-00001-of-00003.gguf", first);
    write("m-00002-of-00003.gguf", part(1, 3, 3, "a"));
    write("m-00003-of-00003.gguf", part(2, 3, 3, "b"));
  }
  std::string error(const std::string& name = "m-00001-of-00003.gguf") const {
    const std::string text = error_of([&] { GgufSource source(folder_ / name); });
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    return text;
  }
  TempFolder folder_;
};

TEST_F(GgufParts, AreOneModel) {
  const GgufSource source(folder_ / "m-00001-of-00003.gguf");
  EXPECT_THAT(source.read("a").span(), ElementsAre(1));
  EXPECT_THAT(source.read("b").span(), ElementsAre(2));
  EXPECT_THAT(source.read("c").span(), ElementsAre(0));
  EXPECT_EQ(source.files().size(), 3u);
  EXPECT_EQ(source.metadata().text("general.architecture"), "llama");
}

TEST_F(GgufParts, AnAlignmentIsOfThePartThatSaysIt) {
  GgufFile first = part(0, 2, 2, "a");
  first.u32("general.alignment", 64).alignment = 64;
  write("k-00001-of-00002.gguf", first);
  write("k-00002-of-00002.gguf", part(1, 2, 2, "b"));
  EXPECT_THAT(GgufSource(folder_ / "k-00001-of-00002.gguf").read("b").span(), ElementsAre(1));
}

TEST_F(GgufParts, OpenByTheFirst) {
  EXPECT_THAT(error("m-00002-of-00003.gguf"),
              HasSubstr("part 2 of 3; open the first, whose name ends in -00001-of-00003.gguf"));
  fs::copy_file(folder_ / "m-00001-of-00003.gguf", folder_ / "model.gguf");
  EXPECT_THAT(error("model.gguf"), HasSubstr("its name must end in -00001-of-00003.gguf"));
}

TEST_F(GgufParts, MustAllBeThere) {
  fs::remove(folder_ / "m-00003-of-00003.gguf");
  EXPECT_THAT(error(), HasSubstr("m-00003-of-00003.gguf is not in the same folder"));
  write("k-00001-of-65535.gguf", part(0, 65535, 70000, "a"));
  EXPECT_THAT(error("k-00001-of-65535.gguf"),
              HasSubstr("k-00002-of-65535.gguf is not in the same folder"));
}

TEST_F(GgufParts, MustFitEachOther) {
  write("m-00002-of-00003.gguf", part(2, 3, 3, "a"));
  EXPECT_THAT(error(), HasSubstr("split.no is 2, not 1"));
  write("m-00002-of-00003.gguf", part(1, 4, 3, "a"));
  EXPECT_THAT(error(), HasSubstr("split.count is 4, not 3"));
  write("m-00002-of-00003.gguf", part(1, 3, 4, "a"));
  EXPECT_THAT(error(), HasSubstr("split.tensors.count is 4, not 3"));
  write("m-00002-of-00003.gguf", part(1, 3, 3, "b"));
  EXPECT_THAT(error(), HasSubstr("tensor 'b' is in m-0000"));
  write("m-00002-of-00003.gguf", GgufFile().floats("a", {1}, {1}));
  EXPECT_THAT(error(), HasSubstr("it has no split.no"));
  GgufFile two = part(1, 3, 3, "a");
  write("m-00002-of-00003.gguf", two.floats("d", {1}, {1}));
  EXPECT_THAT(error(), HasSubstr("split.tensors.count is 3, but its 3 parts hold 4 tensors"));
}

class GgufWriterTest : public testing::Test {
 protected:
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
  const Tensor vector = randn({5}, 1), matrix = randn({3, 64}, 2), cube = randn({2, 3, 4}, 3);
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
  const Tensor tensor = randn({2, 3}, 1);
  const AnnouncedTensor a{"a", tensor.shape()}, b{"b", tensor.shape()};
  const auto refused = [&](const std::vector<AnnouncedTensor>& announced,
                           const std::vector<std::string>& added) {
    GgufWriter writer(path(), {}, announced);
    for (std::size_t i = 0; i + 1 < added.size(); ++i) writer.add(added[i], tensor);
    if (added.back() == "commit")
      EXPECT_THROW(writer.commit(), std::invalid_argument);
    else
      EXPECT_THROW(writer.add(added.back(), tensor), std::invalid_argument);
  };
  refused({a, b}, {"b"});
  refused({{"a", Shape{3, 2}}}, {"a"});
  refused({a, b}, {"a", "commit"});
  refused({a}, {"a", "a"});
  {
    GgufWriter writer(path(), {}, {a});
    writer.add("a", tensor);
    EXPECT_THROW(writer.commit([](const GgufSource&) { throw std::runtime_error("no"); }),
                 std::runtime_error);
  }
  EXPECT_TRUE(is_empty());
}

}  // namespace
}  // namespace focus
