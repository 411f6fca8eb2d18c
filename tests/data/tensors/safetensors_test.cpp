#include "data/tensors/safetensors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "tests/support/notices.h"
#include "tests/support/temp_folder.h"

namespace focus {
namespace {

using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

std::string with_size(std::uint64_t header_bytes, const std::string& rest) {
  std::string file(sizeof(header_bytes), '\0');
  std::memcpy(file.data(), &header_bytes, sizeof(header_bytes));
  return file + rest;
}

/// A file of this header and so many bytes of data.
std::string file_of(const std::string& header, std::size_t data_bytes = 0) {
  return with_size(header.size(), header + std::string(data_bytes, '\1'));
}

std::string tensor_json(const std::string& name, const std::string& shape, int begin, int end,
                        const std::string& dtype = "F32") {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", name, dtype,
                     shape, begin, end);
}

std::string header_of(const std::vector<std::string>& tensors) {
  return fmt::format("{{{}}}", fmt::join(tensors, ","));
}

std::string error_of_file(const std::string& content) {
  const TempFolder folder;
  write_text(folder / "x.safetensors", content);
  const std::string error = error_of([&] { SafetensorsFile file(folder / "x.safetensors"); });
  if (!error.empty()) {
    EXPECT_THAT(error, HasSubstr("x.safetensors"));
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
    EXPECT_LT(error.size(), 500u);
  }
  return error;
}
std::string error_of_header(const std::string& header, std::size_t data_bytes = 0) {
  return error_of_file(file_of(header, data_bytes));
}

class Safetensors : public testing::Test {
 protected:
  const TempFolder folder_;
  const fs::path path_ = folder_ / "a.safetensors";
};

TEST_F(Safetensors, WriteAndReadBack) {
  const Tensor a = Tensor::from({2, 3}, std::vector<Real>{1, 2, 3, 4, 5, -6.5});
  const Tensor scalar = Tensor::from(Shape{}, std::vector<Real>{7});
  const Tensor none(Shape{0, 4});
  write_safetensors(path_, {{"b", a}, {"a.scalar", scalar}, {"z", none}, {"\xc3\xa9\"", a}},
                    {{"format", "pt"}});

  const SafetensorsFile file(path_);
  ASSERT_EQ(file.tensors().size(), 4u);
  EXPECT_EQ(file.tensors()[0].name, "a.scalar");
  EXPECT_EQ(file.tensors()[1].name, "b");
  EXPECT_EQ(file.tensors()[1].dtype, Dtype::f32);
  EXPECT_EQ(file.tensors()[1].stored_as, "F32");
  EXPECT_EQ(file.describe(), path_.string());
  EXPECT_TRUE(file.read("b").shape() == (Shape{2, 3}));
  EXPECT_TRUE(std::ranges::equal(file.read("b").span(), a.span()));
  EXPECT_TRUE(std::ranges::equal(file.read("\xc3\xa9\"").span(), a.span()));
  EXPECT_EQ(file.read("a.scalar")[0], Real{7});
  EXPECT_EQ(file.read("a.scalar").rank(), 0);
  EXPECT_TRUE(file.read("z").shape() == (Shape{0, 4}));
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_THAT(error_of([&] { file.read("c"); }), HasSubstr("no tensor 'c'"));

  const std::string bytes = read_text(path_);
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof(header));
  EXPECT_EQ(header % 8, 0u);
  EXPECT_THAT(bytes, HasSubstr(R"("__metadata__":{"format":"pt"})"));
  write_safetensors(folder_ / "again",
                    {{"z", none}, {"\xc3\xa9\"", a}, {"b", a}, {"a.scalar", scalar}},
                    {{"format", "pt"}});
  EXPECT_EQ(read_text(folder_ / "again"), bytes);
}

TEST_F(Safetensors, WriterRefuses) {
  const Tensor a = Tensor::zeros({2});
  const auto error = [&](std::vector<std::pair<std::string, Tensor>> tensors) {
    const std::string text = error_of([&] { write_safetensors(path_, std::move(tensors)); });
    EXPECT_EQ(files_in(folder_.path()), 0u);
    return text;
  };
  EXPECT_THAT(error({{"a", a}, {"a", a}}), HasSubstr("'a' appears twice"));
  EXPECT_THAT(error({{"", a}}), HasSubstr("is not a valid tensor name"));
  EXPECT_THAT(error({{"__metadata__", a}}), HasSubstr("is not a valid tensor name"));
  EXPECT_THAT(error({{"a", Tensor()}}), HasSubstr("'a' is undefined"));
  EXPECT_THAT(error({{"\xff", a}}), HasSubstr("not UTF-8"));
}

TEST_F(Safetensors, ReadsHalfAndDoublePrecision) {
  std::string data(2 * 3 + 2 * 3 + 8, '\0');
  const std::uint16_t f16[] = {0x3c00, 0xc000, 0x0001};   // 1, -2, the smallest subnormal
  const std::uint16_t bf16[] = {0x3f80, 0xc020, 0x7f80};  // 1, -2.5, infinity
  const double f64 = 0.1;
  std::memcpy(data.data(), f16, 6);
  std::memcpy(data.data() + 6, bf16, 6);
  std::memcpy(data.data() + 12, &f64, 8);
  const std::string header =
      header_of({tensor_json("h", "[3]", 0, 6, "F16"), tensor_json("b", "[3]", 6, 12, "BF16"),
                 tensor_json("d", "[1]", 12, 20, "F64")}) +
      "   ";
  write_text(path_, with_size(header.size(), header + data));
  const SafetensorsFile file(path_);
  const Tensor h = file.read("h"), b = file.read("b");
  EXPECT_EQ(h[0], Real{1});
  EXPECT_EQ(h[1], Real{-2});
  EXPECT_EQ(h[2], static_cast<Real>(std::ldexp(1.0, -24)));
  EXPECT_EQ(b[1], Real{-2.5});
  EXPECT_TRUE(std::isinf(b[2]));
  EXPECT_EQ(file.read("d")[0], static_cast<Real>(0.1));
  std::vector<std::byte> raw;
  file.read_raw("b", raw);
  EXPECT_EQ(std::memcmp(raw.data(), bf16, 6), 0);

  EXPECT_EQ(nonfinite_of(file).count, 1);
  EXPECT_EQ(count_nonfinite(b), 1);
}

TEST_F(Safetensors, ListsOtherTypesAndRefusesToReadThemAsWeights) {
  const std::string header =
      header_of({tensor_json("attn.bias", "[1,1,2,2]", 0, 4, "BOOL"),
                 tensor_json("ids", "[1]", 4, 12, "I64"), tensor_json("new", "[7]", 12, 15, "F9_X"),
                 tensor_json("q", "[4]", 15, 17, "F4"), tensor_json("w", "[1]", 17, 21)});
  write_text(path_, file_of(header, 21));
  const SafetensorsFile file(path_);
  ASSERT_EQ(file.tensors().size(), 5u);
  EXPECT_EQ(file.find("attn.bias")->stored_as, "BOOL");
  EXPECT_EQ(file.find("attn.bias")->dtype, Dtype::other);
  EXPECT_EQ(file.find("new")->stored_as, "F9_X");
  EXPECT_THAT(error_of([&] { file.read("attn.bias"); }),
              HasSubstr("'attn.bias' is stored as BOOL, which cannot be read as weights"));
  EXPECT_THAT(error_of([&] { file.read("new"); }), HasSubstr("F9_X"));
  EXPECT_EQ(file.read("w").size(), 1);
  std::vector<std::byte> raw;
  file.read_raw("ids", raw);
  EXPECT_EQ(raw, std::vector<std::byte>(8, std::byte{1}));
  EXPECT_EQ(nonfinite_of(file).count, 0);
}

TEST_F(Safetensors, LegalOddities) {
  EXPECT_EQ(error_of_header("{}"), "");
  EXPECT_EQ(error_of_header("{}    "), "");
  EXPECT_EQ(error_of_header(R"({"__metadata__":{}})"), "");
  EXPECT_EQ(error_of_header(header_of({tensor_json("a", "[]", 0, 4)}), 4), "");
  EXPECT_EQ(error_of_header(header_of({tensor_json("a", "[0,3]", 0, 0)})), "");
  // Two of size zero at the same place, and one between two others.
  EXPECT_EQ(
      error_of_header(header_of({tensor_json("a", "[1]", 0, 4), tensor_json("b", "[0]", 4, 4),
                                 tensor_json("c", "[0]", 4, 4), tensor_json("d", "[1]", 4, 8)}),
                      8),
      "");
  // Offsets need no alignment.
  EXPECT_EQ(error_of_header(
                header_of({tensor_json("a", "[1]", 0, 1, "U8"), tensor_json("b", "[1]", 1, 5)}), 5),
            "");
}

TEST_F(Safetensors, RefusesBadSizes) {
  EXPECT_THAT(error_of_file(""), HasSubstr("it has 0 bytes"));
  EXPECT_THAT(error_of_file("1234567"), HasSubstr("it has 7 bytes"));
  EXPECT_THAT(error_of_file(with_size(100'000'001, "{}")),
              HasSubstr("its header has 100000001 bytes"));
  EXPECT_THAT(error_of_file(with_size(~std::uint64_t{0}, "{}")),
              HasSubstr("its header has 184467440737"));
  EXPECT_THAT(error_of_file(with_size(3, "{}")), HasSubstr("it was cut short"));
  EXPECT_THAT(error_of_file(with_size(0, "{}")), HasSubstr("does not start with '{'"));
}

TEST_F(Safetensors, RefusesBadJson) {
  for (const char* text : {" {}", "[]"})
    EXPECT_THAT(error_of_header(text), HasSubstr("does not start with '{'")) << text;
  EXPECT_THAT(error_of_header("{}\n"), HasSubstr("does not end with '}' and spaces"));
  EXPECT_THAT(error_of_header("{}x"), HasSubstr("does not end with"));
  for (const std::string text : {"{}{}", "{\"a\":}", "{\"a\": // no comments\n {}}"})
    EXPECT_THAT(error_of_header(text), HasSubstr("not valid JSON")) << text;
  for (const char* name : {"\xff", "\xed\xa0\x80"})
    EXPECT_THAT(error_of_header(header_of({tensor_json(name, "[1]", 0, 4)}), 4),
                HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of_header("{\"a\":" + std::string(1'000'000, '[') + "}"),
              HasSubstr("nested deeper than 64 levels"));
  EXPECT_THAT(error_of_header("{\"a\":" + std::string(100'000, '{') + "}"),
              HasSubstr("not valid JSON"));
}

TEST_F(Safetensors, RefusesDuplicates) {
  const std::string a = tensor_json("a", "[0]", 0, 0);
  for (const auto& [header, twice] : std::vector<std::pair<std::string, std::string>>{
           {"{" + a + "," + a + "}", "a"},
           // In another spelling.
           {"{" + a + "," + tensor_json("\\u0061", "[0]", 0, 0) + "}", "a"},
           {R"({"__metadata__":{},"__metadata__":{}})", "__metadata__"},
           {R"({"__metadata__":{"k":"1","k":"2"}})", "k"},
           {R"({"a":{"dtype":"F32","dtype":"F32","shape":[0],"data_offsets":[0,0]}})", "dtype"}})
    EXPECT_THAT(error_of_header(header), HasSubstr("key \"" + twice + "\" appears twice"));
}

TEST_F(Safetensors, RefusesWrongFields) {
  const std::string type = R"("dtype":"F32")", shape = R"("shape":[1])";
  const std::string offsets = R"("data_offsets":[0,4])";
  const auto with_shape = [&](const std::string& other) {
    return type + R"(,"shape":)" + other + "," + offsets;
  };
  const auto with_offsets = [&](const std::string& other) {
    return type + "," + shape + R"(,"data_offsets":)" + other;
  };
  std::string ones = "[1";
  for (int i = 0; i < 99; ++i) ones += ",1";
  for (const auto& [fields, error] : std::vector<std::pair<std::string, std::string>>{
           {type + "," + shape, ": \"data_offsets\" is missing"},
           {type + "," + offsets, ": \"shape\" is missing"},
           {shape + "," + offsets, ": \"dtype\" is missing"},
           {type + "," + shape + "," + offsets + R"(,"x":1)", ": unknown field 'x'"},
           {R"("dtype":32,)" + shape + "," + offsets, ".dtype: expected a string, found number"},
           {R"("dtype":null,)" + shape + "," + offsets, ".dtype: expected a string, found null"},
           {with_shape("1"), ".shape: expected a list, found number"},
           {with_shape("{}"), ".shape: expected a list, found object"},
           {with_shape("[[1]]"),
            ".shape[0]: must be a whole number from 0 and below 2^64, not [1]"},
           {with_shape(R"(["1"])"),
            ".shape[0]: must be a whole number from 0 and below 2^64, not \"1\""},
           {with_shape("[true]"), "not true"},
           {with_shape("[-1]"), "not -1"},
           {with_shape("[1e0]"), "not 1.0"},
           {with_shape("[1.0]"), "not 1.0"},
           {with_shape(ones + "]"), ": 100 dimensions are too many"},
           {with_offsets("[-4,0]"), ".data_offsets[0]: must be a whole number"},
           {with_offsets("[0,36893488147419103232]"), "not 3.68934881474191"},
           {with_offsets("[0,4,4]"), "holds 3 numbers"},
           {with_offsets("[4]"), "holds 1 numbers"},
           {with_offsets("[4,0]"), "after their end"}})
    EXPECT_THAT(error_of_header("{\"a\":{" + fields + "}}", 4),
                AllOf(HasSubstr("tensor 'a'"), HasSubstr(error)));
  for (const auto& [header, error] : std::vector<std::pair<std::string, std::string>>{
           {R"({"a":[]})", "'a': expected an object, found array"},
           {R"({"a":"x"})", "'a': expected an object, found string"},
           {R"({"__metadata__":{"k":1}})", "__metadata__.k: expected a string, found number"},
           {R"({"__metadata__":{"k":{}}})", "__metadata__.k: expected a string, found object"},
           {R"({"__metadata__":null})", "expected an object, found null"},
           {"{" + tensor_json(std::string(5000, 'n'), "[0]", 0, 0) + "}", "has 5000 bytes"}})
    EXPECT_THAT(error_of_header(header), HasSubstr(error));
}

TEST_F(Safetensors, RefusesSizesThatDoNotAddUp) {
  struct Sizes {
    const char* shape;
    int begin, end;
    std::size_t bytes;
    const char* error;
    const char* dtype = "F32";
  };
  for (const Sizes& x : std::vector<Sizes>{
           {"[2]", 0, 4, 4, "its shape and F32 need 8 bytes, but data_offsets hold 4"},
           {"[3]", 0, 2, 2, "need 2 bytes", "F4"},
           {"[4294967296,4294967296]", 0, 0, 0, "does not fit 64 bits"},
           {"[4611686018427387904]", 0, 0, 0, "does not fit 64 bits"},
           {"[9223372036854775807,2]", 0, 4, 4, "does not fit 64 bits", "NEW"},
           {"[18446744073709551615]", 0, 4, 4, "is too large"},
           {"[1]", 4, 8, 8, "there is a gap"},
           {"[2]", 0, 8, 4, "cut short"},
           {"[1]", 0, 4, 8, "4 bytes follow the last tensor"}})
    EXPECT_THAT(
        error_of_header("{" + tensor_json("a", x.shape, x.begin, x.end, x.dtype) + "}", x.bytes),
        HasSubstr(x.error));
  EXPECT_THAT(error_of_header("{}", 4), HasSubstr("4 bytes follow the last tensor"));
  const auto two = [](const std::string& shape, int end, int begin, int last) {
    return error_of_header(
        header_of({tensor_json("a", shape, 0, end), tensor_json("b", shape, begin, last)}),
        static_cast<std::size_t>(last));
  };
  EXPECT_THAT(two("[2]", 8, 4, 12), HasSubstr("they overlap"));
  EXPECT_THAT(two("[2]", 8, 0, 8), HasSubstr("they overlap"));
  EXPECT_THAT(two("[1]", 4, 8, 12), HasSubstr("there is a gap"));
}

TEST_F(Safetensors, EveryTruncationIsRefused) {
  write_safetensors(path_, {{"a", Tensor::zeros({3})}, {"b", Tensor::zeros({2, 2})}});
  for (std::size_t size = fs::file_size(path_); size-- > 0;) {
    fs::resize_file(path_, size);
    EXPECT_NE(error_of([&] { SafetensorsFile file(path_); }), "") << size;
  }
}

/// The format has no checksum: what still opens must read without harm and fit its declaration.
TEST_F(Safetensors, FlippedBitsNeverCrash) {
  write_safetensors(path_, {{"a", Tensor::zeros({3})}, {"b", Tensor::zeros({2, 2})}}, {{"k", "v"}});
  const std::size_t bits = fs::file_size(path_) * 8;
  for (std::size_t bit = 0; bit < bits; ++bit) {
    flip_bit(path_, bit);
    try {
      const SafetensorsFile file(path_);
      for (const TensorInfo& info : file.tensors()) {
        std::vector<std::byte> raw;
        file.read_raw(info.name, raw);
        if (info.dtype == Dtype::other) continue;
        EXPECT_EQ(raw.size(), bytes_of(info.dtype, info.size()));
        EXPECT_EQ(file.read(info.name).size(), info.size());
      }
    } catch (const std::runtime_error& error) {
      EXPECT_THAT(error.what(), HasSubstr(path_.string())) << "bit " << bit;
    }
    flip_bit(path_, bit);
  }
  EXPECT_EQ(SafetensorsFile(path_).tensors().size(), 2u);
}

TEST_F(Safetensors, FileThatShrinksIsAnError) {
  write_safetensors(path_, {{"a", Tensor::zeros({3})}});
  const SafetensorsFile file(path_);
  fs::resize_file(path_, fs::file_size(path_) - 1);
  EXPECT_THAT(error_of([&] { file.read("a"); }), HasSubstr("became shorter"));
}

class SafetensorsFolder : public testing::Test {
 protected:
  void index(const std::string& json) {
    write_text(folder_ / "model.safetensors.index.json", json);
  }
  void shard(const std::string& file, const std::string& tensor, Real value) {
    write_safetensors(folder_ / file, {{tensor, Tensor::full({2}, value)}});
  }
  std::string error() const {
    return error_of([&] { open_safetensors_folder(folder_.path()); });
  }
  TempFolder folder_;
};

TEST_F(SafetensorsFolder, ReadsSingleAndSharded) {
  shard("one.safetensors", "b", 1);
  shard("two.safetensors", "a", 2);
  index(
      R"({"metadata":{"total_size":16},"weight_map":{"b":"one.safetensors","a":"two.safetensors"}})");
  const auto sharded = open_safetensors_folder(folder_.path());
  ASSERT_EQ(sharded->tensors().size(), 2u);
  EXPECT_EQ(sharded->tensors()[0].name, "a");
  EXPECT_EQ(sharded->read("a")[0], Real{2});
  EXPECT_EQ(sharded->read("b")[1], Real{1});
  shard("model.safetensors", "c", 3);
  EXPECT_EQ(open_safetensors_folder(folder_.path())->read("c")[0], Real{3});
}

TEST_F(SafetensorsFolder, TheIndexSaysWhichCopyIsRead) {
  shard("one.safetensors", "b", 1);
  write_safetensors(
      folder_ / "two.safetensors",
      {{"a", Tensor::zeros({1})}, {"b", Tensor::zeros({2})}, {"old.weight", Tensor::zeros({3})}});
  index(R"({"weight_map":{"b":"one.safetensors","a":"two.safetensors"}})");
  const Notices notices;
  const auto source = open_safetensors_folder(folder_.path());
  ASSERT_EQ(source->tensors().size(), 2u);
  EXPECT_EQ(source->read("b")[1], Real{1});
  EXPECT_EQ(source->find("old.weight"), nullptr);
  EXPECT_THAT(notices.text(), HasSubstr("2 tensors of its files are ignored"));
  EXPECT_THAT(notices.text(), HasSubstr("'b' in two.safetensors"));
}

TEST_F(SafetensorsFolder, RefusesBadIndexes) {
  EXPECT_THAT(error(), HasSubstr("neither model.safetensors nor"));
  write_text(folder_ / "pytorch_model.bin", "");
  EXPECT_THAT(error(), HasSubstr("convert them to safetensors"));
  shard("one.safetensors", "b", 1);
  const auto map = [&](const std::string& entries) {
    index(std::string("{\"weight_map\":{") + entries + "}}");
    return error();
  };
  EXPECT_EQ(map(R"("b":"one.safetensors")"), "");
  EXPECT_THAT(map(R"("b":"one.safetensors","b":"one.safetensors")"), HasSubstr("twice"));
  EXPECT_THAT(map(R"("b":"gone.safetensors")"),
              HasSubstr("names gone.safetensors, which is not in the same folder"));
  for (const std::string name :
       {"../one.safetensors", "/etc/passwd", "..", "", R"(one.safetensors\u0000)"})
    EXPECT_THAT(map("\"b\":\"" + name + "\""), HasSubstr("plain file name")) << name;
  EXPECT_THAT(map(R"("b":1)"), HasSubstr("weight_map.b: expected a string"));
  EXPECT_THAT(map(R"("c":"one.safetensors")"), HasSubstr("'c' is not in one.safetensors"));
  EXPECT_THAT(map(R"("b":"one.safetensors","b2":"one.safetensors")"), HasSubstr("'b2' is not in"));
  for (const auto& [json, part] : std::vector<std::pair<std::string, std::string>>{
           {"{}", "\"weight_map\" is missing"},
           {"[]", "expected an object"},
           {"{", "not valid JSON"},
           {"{\"weight_map\":" + std::string(100'000, '['), "nested deeper"}}) {
    index(json);
    EXPECT_THAT(error(), HasSubstr(part));
  }
  EXPECT_THAT(error_of([&] { open_safetensors_folder(folder_ / "one.safetensors"); }),
              HasSubstr("not a folder"));
}

}  // namespace
}  // namespace focus
