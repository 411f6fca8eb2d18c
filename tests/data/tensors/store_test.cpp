#include "data/tensors/store.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>

#include "autograd/gemm/block_formats.h"
#include "autograd/version.h"
#include "data/files/durable_file.h"
#include "data/files/hdf5.h"
#include "tests/support/compare.h"
#include "tests/support/random.h"
#include "tests/support/temp_folder.h"

/// Read by the leak sanitizer, where the build has it: the HDF5 library loses some bytes of its own
/// whenever it gives up on a damaged file or a full disk.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libhdf5\n"; }

namespace focus {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr std::string_view kReal = sizeof(Real) == sizeof(float) ? "f32" : "f64";

/// A store with an object of every kind.
void write_sample(const fs::path& path) {
  StoreWriter writer(path, "training");
  writer.attribute("/train", "step", std::int64_t{-120});
  writer.attribute("/train", "tokens", ~std::uint64_t{0});
  writer.attribute("/train", "loss", 3.25);
  writer.attribute("/train", "note", "caf\xc3\xa9");
  writer.attribute("/train", "empty", "");
  writer.text("/config", "seed: 1\n");
  writer.text("/nothing", "");
  writer.tensor("/model/transformer/wte/weight", randn(Shape{5, 3}, 1));
  writer.tensor("/model/transformer/h/0/bias", randn(Shape{700, 4}, 2));
  writer.tensor("/model/scalar", randn(Shape{}, 3));
  writer.tensor("/model/none", Tensor(Shape{0, 3}));
  const std::array<std::uint16_t, 2> halves{0x3f80, 0xc020};
  writer.tensor_raw("/model/half", std::array<Index, 1>{2}, Dtype::bf16,
                    std::as_bytes(std::span(halves)));
  writer.commit();
}

/// All that a reader can get out of the sample, as one text.
std::string contents_of(const StoreReader& store) {
  std::string all = store.kind();
  all += fmt::format(
      "|{}|{}|{}|{}|{}", store.int_attribute("/train", "step"),
      store.uint_attribute("/train", "tokens"), store.double_attribute("/train", "loss"),
      store.string_attribute("/train", "note"), store.string_attribute("/train", "empty"));
  for (const std::string& path : store.all_datasets()) all += "|" + path;
  all += store.text("/config") + store.text("/nothing");
  const auto source = store.source("/model");
  for (const TensorInfo& info : source->tensors()) {
    all += "|" + info.name + info.stored_as;
    const Tensor tensor = source->read(info.name);
    all += tensor.shape().str();
    all.append(reinterpret_cast<const char*>(tensor.data()), tensor.span().size_bytes());
  }
  return all;
}

class Store : public testing::Test {
 protected:
  const TempFolder folder_;
  const fs::path path_ = folder_ / "a.h5";
};

TEST_F(Store, RoundTrip) {
  write_sample(path_);
  EXPECT_EQ(files_in(folder_.path()), 1u);
  const StoreReader store(path_);
  store.verify();
  EXPECT_EQ(store.kind(), "training");
  EXPECT_EQ(store.string_attribute("/", "format"), "focus");
  EXPECT_EQ(store.int_attribute("/", "format_version"), kStoreVersion);
  EXPECT_EQ(store.string_attribute("/", "creator_version"), FOCUS_VERSION);
  EXPECT_TRUE(store.has_attribute("/", "hdf5_version"));
  EXPECT_EQ(store.int_attribute("/train", "step"), -120);
  EXPECT_EQ(store.uint_attribute("/train", "tokens"), ~std::uint64_t{0});
  EXPECT_EQ(store.double_attribute("/train", "loss"), 3.25);
  EXPECT_EQ(store.string_attribute("/train", "note"), "caf\xc3\xa9");
  EXPECT_EQ(store.string_attribute("/train", "empty"), "");
  EXPECT_EQ(store.text("/config"), "seed: 1\n");
  EXPECT_EQ(store.text("/nothing"), "");
  EXPECT_TRUE(
      same_bits(store.tensor("/model/transformer/wte/weight", Shape{5, 3}), randn(Shape{5, 3}, 1)));
  EXPECT_TRUE(same_bits(store.tensor("/model/scalar"), randn(Shape{}, 3)));
  EXPECT_TRUE(store.tensor("/model/none").shape() == (Shape{0, 3}));
  EXPECT_EQ(store.tensor("/model/half")[1], Real{-2.5});
  EXPECT_THAT(store.shape("/model/transformer/h/0/bias"), ElementsAre(700, 4));
  EXPECT_THAT(store.list("/"), ElementsAre("config", "model", "nothing", "train"));
  EXPECT_THAT(store.list("/model/transformer"), ElementsAre("h", "wte"));
  EXPECT_EQ(store.all_datasets().size(), 7u);
  EXPECT_TRUE(store.has("/model/transformer"));
  EXPECT_TRUE(store.has("/config"));
  EXPECT_FALSE(store.has("/model/transformer/x"));
}

TEST_F(Store, SourceOutlivesTheReader) {
  write_sample(path_);
  const auto source = StoreReader(path_).source("/model");
  ASSERT_EQ(source->tensors().size(), 5u);
  EXPECT_EQ(source->tensors()[0].name, "half");
  EXPECT_EQ(source->tensors()[0].dtype, Dtype::bf16);
  EXPECT_EQ(source->tensors()[3].name, "transformer.h.0.bias");
  EXPECT_EQ(source->tensors()[3].stored_as, kReal);
  EXPECT_EQ(store_path("/model", "transformer.h.0.bias"), "/model/transformer/h/0/bias");
  EXPECT_TRUE(same_bits(source->read("transformer.h.0.bias"), randn(Shape{700, 4}, 2)));
  EXPECT_EQ(nonfinite_of(*source).count, 0);
  std::vector<std::byte> raw;
  source->read_raw("half", raw);
  EXPECT_EQ(raw.size(), 4u);
  EXPECT_EQ(source->describe(), path_.string());
}

TEST_F(Store, EverySizeAndLayout) {
  const std::vector<Shape> shapes = {
      {1},         {7, 1, 3},      {2000},       {8191},          {20'000},
      {300, 1000}, {1000, 7, 100}, {3, 600'000}, {1, 1, 700'001}, {70'001, 17}};
  {
    StoreWriter writer(path_, "model");
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      writer.tensor(fmt::format("/t/{}", i), randn(shapes[i], i));
    }
    writer.commit();
  }
  const StoreReader store(path_);
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    EXPECT_TRUE(same_bits(store.tensor(fmt::format("/t/{}", i), shapes[i]), randn(shapes[i], i)))
        << i;
    bytes += static_cast<std::size_t>(shapes[i].size()) * sizeof(Real);
  }
  EXPECT_LT(fs::file_size(path_), bytes + bytes / 50 + 20'000) << "space is wasted";
}

TEST_F(Store, ReadsBothPrecisions) {
  const std::array<float, 2> singles{0.5f, -3.0f};
  const std::array<double, 2> doubles{0.25, 7.0};
  const std::array<Index, 1> shape{2};
  StoreWriter writer(path_, "model");
  writer.tensor_raw("/single", shape, Dtype::f32, std::as_bytes(std::span(singles)));
  writer.tensor_raw("/double", shape, Dtype::f64, std::as_bytes(std::span(doubles)));
  writer.commit();
  const StoreReader store(path_);
  EXPECT_EQ(store.tensor("/single")[1], Real{-3});
  EXPECT_EQ(store.tensor("/double")[0], Real{0.25});
}

TEST_F(Store, EqualContentsGiveEqualBytes) {
  write_sample(path_);
  usleep(1'100'000);  // past a second: a stored time would differ
  write_sample(folder_ / "b.h5");
  EXPECT_EQ(read_text(path_), read_text(folder_ / "b.h5"));
}

TEST_F(Store, WriterRefuses) {
  StoreWriter writer(path_, "model");
  const Tensor t = Tensor::zeros({2});
  const auto tensor = [&](const std::string& path) {
    return error_of([&] { writer.tensor(path, t); });
  };
  EXPECT_EQ(tensor("/a/b"), "");
  EXPECT_THAT(tensor("/a/b"), HasSubstr("'/a/b' exists already"));
  EXPECT_THAT(tensor("/a"), HasSubstr("'/a' exists already"));
  EXPECT_THAT(tensor("/a/b/c"), HasSubstr("'/a/b' is a data set and cannot be a group"));
  for (const char* path : {"", "/", "a", "/a/", "//a", "/a//b", "/./a", "/a/.."}) {
    EXPECT_THAT(tensor(path), HasSubstr("is not a valid path")) << path;
  }
  const std::array<Index, 1> shape{2};
  EXPECT_THAT(error_of([&] {
                writer.tensor_raw("/r", shape, Dtype::f16, std::as_bytes(t.span()).first(2));
              }),
              HasSubstr("tensor '/r' [2] of f16 needs 4 bytes, got 2"));
  EXPECT_THAT(error_of([&] { writer.tensor("/u", Tensor()); }), HasSubstr("undefined"));
  const auto attribute = [&](const std::string& name, const AttributeValue& value) {
    return error_of([&] { writer.attribute("/g", name, value); });
  };
  EXPECT_EQ(attribute("a", std::string(60'000, 'x')), "");
  EXPECT_THAT(attribute("a", 1), HasSubstr("'a' of '/g' exists already"));
  EXPECT_THAT(attribute("b", std::string(60'001, 'x')), HasSubstr("use text()"));
  EXPECT_THAT(attribute("b", std::string("x\0y", 3)), HasSubstr("NUL"));
  EXPECT_THAT(attribute("", 1), HasSubstr("is not a valid attribute name"));
  EXPECT_THAT(attribute("digest", 1), HasSubstr("is not a valid attribute name"));
  writer.commit();
  EXPECT_THAT(error_of([&] { writer.commit(); }), HasSubstr("committed twice"));
  EXPECT_THAT(tensor("/z"), HasSubstr("written after commit"));
  EXPECT_EQ(StoreReader(path_).string_attribute("/g", "a"), std::string(60'000, 'x'));
}

TEST_F(Store, WithoutCommitNothingRemains) {
  write_text(path_, "old");
  {
    StoreWriter writer(path_, "model");
    writer.tensor("/a", randn(Shape{100'000}, 1));
  }
  EXPECT_EQ(read_text(path_), "old");
  EXPECT_EQ(files_in(folder_.path()), 1u);
}

TEST_F(Store, ReaderSaysWhatIsMissingOrWrong) {
  write_sample(path_);
  const StoreReader store(path_);
  const auto refused = [](auto&& action, const char* part) {
    EXPECT_THAT(error_of(action), AllOf(HasSubstr("a.h5"), HasSubstr(part)));
  };
  refused([&] { store.text("/x"); }, "there is no data set '/x'");
  refused([&] { store.text("/train"); }, "there is no data set '/train'");
  refused([&] { store.text("/model/half"); },
          "'/model/half' must be a list of u8, but is [2] of bf16");
  refused([&] { store.tensor("/config"); }, "'/config' is not a tensor");
  refused(
      [&] {
        store.tensor("/model/transformer/wte/weight", Shape{3, 5});
      },
      "'/model/transformer/wte/weight' has shape [5, 3], expected [3, 5]");
  refused([&] { store.list("/config"); }, "there is no group '/config'");
  refused([&] { store.source("/none"); }, "there is no group '/none'");
  refused([&] { store.int_attribute("/none", "a"); }, "there is no group '/none'");
  refused([&] { store.int_attribute("/train", "a"); }, "group '/train' has no attribute 'a'");
  refused([&] { store.int_attribute("/train", "tokens"); }, "must be a whole number");
  refused([&] { store.uint_attribute("/train", "step"); }, "must be a whole number from 0");
  refused([&] { store.string_attribute("/train", "step"); }, "must be a string");
  refused([&] { store.double_attribute("/train", "note"); }, "must be a number");
}

TEST_F(Store, RefusesWhatIsNoStore) {
  const auto error = [](const fs::path& path) {
    return error_of([&] { StoreReader store(path); });
  };
  EXPECT_THAT(error(folder_ / "gone.h5"), HasSubstr("gone.h5: No such file"));
  EXPECT_THAT(error(folder_.path()), HasSubstr("cannot read"));
  write_text(folder_ / "empty.h5", "");
  EXPECT_THAT(error(folder_ / "empty.h5"), HasSubstr("not an HDF5 file (0 bytes)"));
  write_text(folder_ / "text.h5", std::string(10'000, 'x'));
  EXPECT_THAT(error(folder_ / "text.h5"), HasSubstr("not an HDF5 file"));
}

TEST_F(Store, EveryTruncationIsRefused) {
  write_sample(path_);
  for (std::size_t size = fs::file_size(path_); size-- > 0; size -= size / 100) {
    fs::resize_file(path_, size);
    EXPECT_NE(error_of([&] { StoreReader(path_).verify(); }), "") << size;
  }
}

TEST_F(Store, NoFlippedBitChangesWhatIsRead) {
  write_sample(path_);
  const std::string expected = contents_of(StoreReader(path_));
  std::size_t found = 0, tried = 0;
  const std::size_t step = std::getenv("FOCUS_TEST_EVERY_BIT") != nullptr ? 1 : 61;
  for (std::size_t bit = 0; bit < fs::file_size(path_) * 8; bit += step, ++tried) {
    flip_bit(path_, bit);
    try {
      const StoreReader store(path_);
      store.verify();
      // Only what nothing is stored in may change unseen.
      EXPECT_EQ(contents_of(store), expected) << "bit " << bit;
    } catch (const std::runtime_error& error) {
      EXPECT_THAT(error.what(), HasSubstr("a.h5"));
      EXPECT_THAT(error.what(), testing::Not(HasSubstr("\n")));
      ++found;
    }
    flip_bit(path_, bit);
  }
  EXPECT_GT(found, tried / 2);
  EXPECT_EQ(contents_of(StoreReader(path_)), expected);
}

TEST_F(Store, VerifyNamesTheDamagedDataSet) {
  const Tensor chunked = randn(Shape{200'000}, 1), plain = randn(Shape{5000}, 2);
  StoreWriter writer(path_, "model");
  writer.tensor("/sound", randn(Shape{10}, 3));
  writer.tensor("/chunked", chunked);
  writer.tensor("/plain", plain);
  writer.commit();
  const std::string whole = read_text(path_);
  for (const auto& [name, tensor] : {std::pair("/chunked", chunked), std::pair("/plain", plain)}) {
    const std::string_view needle(reinterpret_cast<const char*>(tensor.data()), 64);
    const std::size_t at = whole.find(needle);
    ASSERT_NE(at, std::string::npos);
    write_text(folder_ / "b.h5", whole);
    flip_bit(folder_ / "b.h5", 8 * (at + 33) + 2);
    const StoreReader store(folder_ / "b.h5");
    EXPECT_THAT(error_of([&] { store.verify(); }), HasSubstr(fmt::format("data set '{}'", name)));
    EXPECT_NE(error_of([&, data_set = name] { store.tensor(data_set); }), "");
    EXPECT_EQ(store.tensor("/sound").size(), 10);
  }
}

/// Runs `action` in a child whose files may not grow beyond `bytes`; true where it returns true.
template <class Action>
bool with_file_limit(rlim_t bytes, Action&& action) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, bytes};
    setrlimit(RLIMIT_FSIZE, &limit);
    exit(action() ? 0 : 1);  // with the HDF5 library's own clean-up, which must survive it too
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_F(Store, FailingWriteKeepsTheOldFile) {
  write_sample(path_);
  const std::string before = read_text(path_);
  for (const rlim_t limit : {0, 100, 3000, 100'000, 1'500'000}) {
    EXPECT_TRUE(with_file_limit(limit, [&] {
      const std::string error = error_of([&] {
        StoreWriter writer(path_, "model");
        for (int i = 0; i < 5; ++i)
          writer.tensor(fmt::format("/t/{}", i), randn(Shape{100'000}, 1));
        writer.commit();
      });
      return error.find("cannot write " + path_.string() + ": File too large; ") !=
             std::string::npos;
    })) << limit;
    EXPECT_EQ(read_text(path_), before);
    EXPECT_EQ(files_in(folder_.path()), 1u) << limit;
  }
}

TEST_F(Store, PlacesThatCannotBeWritten) {
  write_text(folder_ / "file", "");
  const auto error = [](const fs::path& path) {
    return error_of([&] { StoreWriter(path, "model").commit(); });
  };
  EXPECT_THAT(error(folder_ / "file/a.h5"), HasSubstr("a.h5: Not a directory"));
  EXPECT_THAT(error(folder_ / "gone/a.h5"), HasSubstr("create it first"));
  fs::create_directory(folder_ / "short");
  StoreWriter writer(folder_ / "short/a.h5", "model");
  fs::remove_all(folder_ / "short");
  EXPECT_THAT(error_of([&] { writer.commit(); }), HasSubstr("short/"));
}

/// 3 rows of 64 numbers.
void write_blocks(const fs::path& path, Dtype dtype) {
  StoreWriter writer(path, "model");
  std::vector<std::byte> bytes;
  pack(randn(Shape{3, 64}, 5).span(), dtype, bytes);
  writer.tensor_raw("/model/a/weight", std::array<Index, 2>{3, 64}, dtype, bytes);
  writer.tensor("/model/b", randn(Shape{4}, 6));
  writer.commit();
}

TEST_F(Store, HoldsMatricesInBlocks) {
  for (const Dtype dtype : kRoundedFormats) {
    const fs::path path = folder_ / (std::string(name_of(dtype)) + ".h5");
    write_blocks(path, dtype);
    const StoreReader store(path);
    store.verify();
    EXPECT_EQ(store.int_attribute("/", "format_version"), kStoreVersion);
    EXPECT_THAT(store.shape("/model/a/weight"), ElementsAre(3, 64));
    std::vector<std::byte> wanted;
    pack(randn(Shape{3, 64}, 5).span(), dtype, wanted);
    EXPECT_TRUE(same_bits(store.tensor("/model/a/weight", Shape{3, 64}),
                          to_tensor(wanted, dtype, {3, 64})));
    const auto source = store.source("/model");
    const TensorInfo* info = source->find("a.weight");
    ASSERT_NE(info, nullptr);
    EXPECT_EQ(info->dtype, dtype);
    EXPECT_EQ(info->stored_as, name_of(dtype));
    const TensorBytes there = source->bytes("a.weight");
    EXPECT_TRUE(std::ranges::equal(there.bytes, wanted));
  }
}

TEST_F(Store, BlocksOfAnotherNameAreDamage) {
  const auto error_with = [&](const char* name, auto f) {
    const fs::path path = folder_ / name;
    write_blocks(path, Dtype::q4_1);
    {
      const H5Handle file(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose);
      const H5Handle object(H5Oopen(file, "/model/a/weight", H5P_DEFAULT), H5Oclose);
      f(object);
    }
    return error_of([&] { StoreReader{path}; });
  };
  const auto rename = [](const char* to) {
    return [to](hid_t object) {
      const H5Handle attribute(H5Aopen(object, "dtype", H5P_DEFAULT), H5Aclose);
      const H5Handle type(H5Aget_type(attribute), H5Tclose);
      ASSERT_GE(H5Awrite(attribute, type, to), 0);
    };
  };
  // An unknown type, one with other blocks, and no type.
  EXPECT_THAT(error_with("a.h5", rename("iq9\0")), HasSubstr("is not a known GGML block type"));
  EXPECT_THAT(error_with("b.h5", rename("q5_1")), HasSubstr("are not rows of q5_1 blocks of 24"));
  EXPECT_THAT(error_with("c.h5", [](hid_t object) { H5Adelete(object, "dtype"); }),
              HasSubstr("do not match its attribute 'digest'"));
}

TEST_F(Store, TakesOnlyRowsOfWholeBlocks) {
  StoreWriter writer(path_, "model");
  const std::vector<std::byte> bytes(5 * 34);
  EXPECT_THROW(writer.tensor_raw("/a", std::array<Index, 1>{160}, Dtype::q8_0, bytes),
               std::invalid_argument);
  EXPECT_THROW(writer.tensor_raw("/a", std::array<Index, 2>{10, 16}, Dtype::q8_0, bytes),
               std::invalid_argument);
  writer.tensor_raw("/a", std::array<Index, 2>{5, 32}, Dtype::q8_0, bytes);
}

}  // namespace
}  // namespace focus
