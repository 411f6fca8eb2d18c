#include "data/gguf/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <set>

#include "autograd/base/check.h"
#include "data/files/json_reader.h"

namespace focus {
namespace fs = std::filesystem;
namespace {

constexpr std::array kGgmlTypes = [] {
  using enum NumberFormat;
  return std::array<GgmlType, 43>{
      {{0, "F32", f32},           {1, "F16", f16},           {2, "Q4_0", q4_0},
       {3, "Q4_1", q4_1},         {4, "Q4_2", other},        {5, "Q4_3", other},
       {6, "Q5_0", q5_0},         {7, "Q5_1", q5_1},         {8, "Q8_0", q8_0},
       {9, "Q8_1", other},        {10, "Q2_K", q2_k},        {11, "Q3_K", q3_k},
       {12, "Q4_K", q4_k},        {13, "Q5_K", q5_k},        {14, "Q6_K", q6_k},
       {15, "Q8_K", other},       {16, "IQ2_XXS", other},    {17, "IQ2_XS", other},
       {18, "IQ3_XXS", other},    {19, "IQ1_S", other},      {20, "IQ4_NL", iq4_nl},
       {21, "IQ3_S", other},      {22, "IQ2_S", other},      {23, "IQ4_XS", iq4_xs},
       {24, "I8", other},         {25, "I16", other},        {26, "I32", other},
       {27, "I64", other},        {28, "F64", other},        {29, "IQ1_M", other},
       {30, "BF16", bf16},        {31, "Q4_0_4_4", other},   {32, "Q4_0_4_8", other},
       {33, "Q4_0_8_8", other},   {34, "TQ1_0", other},      {35, "TQ2_0", other},
       {36, "IQ4_NL_4_4", other}, {37, "IQ4_NL_4_8", other}, {38, "IQ4_NL_8_8", other},
       {39, "MXFP4", other},      {40, "NVFP4", other},      {41, "Q1_0", other},
       {42, "Q2_0", other}}};
}();

constexpr const char* kAlignmentKey = "general.alignment";
constexpr std::uint32_t kMostDimensions = 4;
constexpr std::size_t kMostNameBytes = 63;  // of a tensor, in llama.cpp
/// A name's length, the number of dimensions, a type, an offset.
constexpr std::size_t kSmallestEntry = 8 + 4 + 4 + 8;

std::uint32_t read_version(GgufBytes& bytes) {
  const std::string& where = bytes.where();
  if (bytes.left() < kGgufMagic.size() + 4)
    fail("{}: not a GGUF file: it has {} bytes; get it again", where, bytes.left());
  const auto magic = bytes.take(kGgufMagic.size(), "the magic");
  if (!std::ranges::equal(magic, std::as_bytes(std::span(kGgufMagic))))
    fail("{}: not a GGUF file: it does not begin with \"GGUF\"", where);
  const auto version = bytes.number<std::uint32_t>("the version");
  if (version != 2 && version != 3) {
    const bool swapped = version == 0x02000000 || version == 0x03000000;
    fail("{}: {}; little-endian versions 2 and 3 are supported: convert the model again", where,
         swapped ? std::string("a big-endian GGUF file")
                 : fmt::format("a GGUF file of version {}", version));
  }
  return version;
}

std::uint64_t read_alignment(const GgufMetadata& metadata) {
  const std::int64_t alignment = metadata.integer(kAlignmentKey).value_or(32);
  if (alignment <= 0 || alignment > std::numeric_limits<std::uint32_t>::max() ||
      !std::has_single_bit(static_cast<std::uint64_t>(alignment)))
    fail("{}: {} must be a power of two, not {}", metadata.where(), kAlignmentKey, alignment);
  return static_cast<std::uint64_t>(alignment);
}

const GgmlType& read_ggml_type(GgufBytes& bytes, const std::string& name) {
  const auto number = bytes.number<std::uint32_t>("a tensor's type");
  const auto type = std::ranges::find(kGgmlTypes, number, &GgmlType::number);
  if (type == kGgmlTypes.end())
    fail("{}: tensor '{}' has the unknown type {}", bytes.where(), shown(name), number);
  if (type->format == NumberFormat::other)
    fail(
        "{}: tensor '{}' is stored as {}, which is not supported; F32, F16, BF16, Q8_0, Q4_0 to "
        "Q5_1, Q2_K to Q6_K, IQ4_NL and IQ4_XS are",
        bytes.where(), shown(name), type->name);
  return *type;
}

/// Dimensions, reversed; refuses those whose product no integer holds.
std::vector<Index> read_shape(GgufBytes& bytes, const std::string& name) {
  const auto rank = bytes.number<std::uint32_t>("a tensor's number of dimensions");
  if (rank > kMostDimensions)
    fail("{}: tensor '{}' has {} dimensions; GGUF has at most {}", bytes.where(), shown(name), rank,
         kMostDimensions);
  std::vector<Index> shape(rank);
  Index product = 1;
  for (auto dim = shape.rbegin(); dim != shape.rend(); ++dim) {
    const auto size = bytes.number<std::uint64_t>("a tensor's dimensions");
    const bool fits = size <= static_cast<std::uint64_t>(std::numeric_limits<Index>::max());
    *dim = static_cast<Index>(size);
    if (!fits || __builtin_mul_overflow(product, std::max<Index>(*dim, 1), &product))
      fail("{}: tensor '{}' has a dimension of {}: no model is that large", bytes.where(),
           shown(name), size);
  }
  return shape;
}

TensorInfo read_tensor_info(GgufBytes& bytes) {
  TensorInfo info;
  info.name = bytes.text("a tensor's name");
  if (info.name.size() > kMostNameBytes)
    fail("{}: tensor '{}' has a name of {} bytes; GGUF has at most {}", bytes.where(),
         shown(info.name), info.name.size(), kMostNameBytes);
  info.shape = read_shape(bytes, info.name);
  const GgmlType& type = read_ggml_type(bytes, info.name);
  info.dtype = type.format;
  info.stored_as = type.name;
  const Index width = info.shape.empty() ? 1 : info.shape.back(), block = block_numbers(info.dtype);
  if (width % block != 0)
    fail("{}: tensor '{}' has rows of {} values, which do not fill whole {} blocks of {}",
         bytes.where(), shown(info.name), width, type.name, block);
  info.begin = bytes.number<std::uint64_t>("a tensor's offset");
  return info;
}

/// From offsets to places in the file: each tensor begins where the padded one before it ends.
void place_tensors(std::vector<TensorInfo>& tensors, std::uint64_t data, std::uint64_t alignment,
                   std::uint64_t file_bytes, const std::string& where) {
  std::uint64_t next = 0;  // from `data` on
  for (TensorInfo& info : tensors) {
    const std::string name = shown(info.name);
    if (info.begin != next)
      fail("{}: tensor '{}' is declared at offset {}, but the one before it ends at {}", where,
           name, info.begin, next);
    const Index numbers = info.size(), block = block_numbers(info.dtype);
    const std::uint64_t block_bytes = bytes_of(info.dtype, block);
    const auto blocks = static_cast<std::uint64_t>(numbers / block);
    info.begin += data;
    const std::uint64_t left = file_bytes > info.begin ? file_bytes - info.begin : 0;
    if (blocks > left / block_bytes)
      fail("{}: tensor '{}' reaches beyond the end of the file, which has {} bytes; get it again",
           where, name, file_bytes);
    info.bytes = blocks * block_bytes;
    next += info.bytes + padding_after(next + info.bytes, alignment);
  }
}

constexpr const char *kNumberKey = "split.no", *kCountKey = "split.count",
                     *kTensorsKey = "split.tensors.count";

/// "-00002-of-00003.gguf": the end of the name of part `number`, counted from 0.
std::string ending_of(std::int64_t number, std::int64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", number + 1, count);
}

/// Holds what a part says of itself against what it must be.
void check_part(const GgufMetadata& part, const char* key, std::int64_t wanted) {
  const auto found = part.integer(key);
  if (!found) fail("{}: it has no {}: it is not a part of this split model", part.where(), key);
  if (*found != wanted)
    fail("{}: {} is {}, not {}: it is not a part of this split model", part.where(), key, *found,
         wanted);
}

}  // namespace

std::span<const GgmlType> ggml_types() { return kGgmlTypes; }

GgufHeader parse_gguf(std::span<const std::byte> file, const std::string& where) {
  GgufBytes bytes(file, where);
  GgufHeader header;
  header.version = read_version(bytes);
  const std::size_t tensors = bytes.count(kSmallestEntry, "the number of tensors");
  const auto keys = bytes.number<std::uint64_t>("the number of keys");
  header.metadata = GgufMetadata(bytes, keys);
  const std::uint64_t alignment = read_alignment(header.metadata);
  std::set<std::string> names;
  for (std::size_t i = 0; i < tensors; ++i) {
    header.tensors.push_back(read_tensor_info(bytes));
    const std::string& name = header.tensors.back().name;
    if (!names.insert(name).second) fail("{}: tensor '{}' appears twice", where, shown(name));
  }
  const std::uint64_t data = bytes.at() + padding_after(bytes.at(), alignment);
  place_tensors(header.tensors, data, alignment, file.size(), where);
  return header;
}

bool is_gguf(const fs::path& path) try {
  if (!fs::exists(path) || fs::is_directory(path)) return false;
  if (path.extension() == ".gguf") return true;
  if (!fs::is_regular_file(path)) return false;
  InputFile file(path);
  std::array<char, kGgufMagic.size()> magic{};
  return file.read(std::as_writable_bytes(std::span(magic))) == magic.size() &&
         std::ranges::equal(magic, kGgufMagic);
} catch (const std::exception&) {  // who opens it says why it cannot be read
  return false;
}

GgufMetadata GgufSource::add_part(const fs::path& path, std::vector<TensorInfo>& tensors) {
  const std::size_t number = files().size();
  GgufHeader header = parse_gguf(open(path).map()->bytes(), path.string());
  for (TensorInfo& info : header.tensors) {
    info.file = number;
    tensors.push_back(std::move(info));
  }
  return std::move(header.metadata);
}

GgufSource::GgufSource(const fs::path& path) : TensorFiles(path) {
  std::vector<TensorInfo> tensors;
  metadata_ = add_part(path, tensors);
  const std::int64_t count = metadata_.integer(kCountKey).value_or(0);
  if (count > 1) {
    const std::int64_t number = metadata_.integer(kNumberKey).value_or(0);
    if (number != 0)
      fail("{}: it is part {} of {}; open the first, whose name ends in {}", path.string(),
           number + 1, count, ending_of(0, count));
    const std::string name = path.filename().string(), ending = ending_of(0, count);
    if (!name.ends_with(ending))
      fail("{}: it is the first of {} parts, and its name must end in {}", path.string(), count,
           ending);
    const std::string stem = name.substr(0, name.size() - ending.size());
    const std::int64_t total = metadata_.integer(kTensorsKey).value_or(-1);
    for (std::int64_t i = 1; i < count; ++i) {
      const fs::path next = path.parent_path() / (stem + ending_of(i, count));
      if (!is_there(next))
        fail("{}: the model has {} parts, and {} is not in the same folder: get all of them",
             path.string(), count, shown_whole(next.filename().string()));
      const GgufMetadata part = add_part(next, tensors);
      check_part(part, kNumberKey, i);
      check_part(part, kCountKey, count);
      check_part(part, kTensorsKey, total);
    }
    if (total != static_cast<std::int64_t>(tensors.size()))
      fail("{}: {} is {}, but its {} parts hold {} tensors", path.string(), kTensorsKey, total,
           count, tensors.size());
  }
  std::ranges::sort(tensors, {}, &TensorInfo::name);
  const auto twice = std::ranges::adjacent_find(tensors, {}, &TensorInfo::name);
  if (twice != tensors.end()) {
    const auto file = [&](const TensorInfo& info) {
      return files()[info.file].filename().string();
    };
    fail("{}: tensor '{}' is in {} and in {}", path.string(), shown(twice->name), file(*twice),
         file(*std::next(twice)));
  }
  set_tensors(std::move(tensors));
}

}  // namespace focus
