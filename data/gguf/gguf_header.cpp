#include "data/gguf/gguf_header.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <set>

#include "autograd/base/check.h"
#include "data/files/json_reader.h"

namespace focus {
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

std::uint64_t padded(std::uint64_t at, std::uint64_t alignment) {
  return (at + alignment - 1) / alignment * alignment;
}

std::uint32_t read_version(GgufBytes& bytes) {
  const std::string& where = bytes.where();
  if (bytes.left() < kGgufMagic.size() + 4)
    fail("{}: not a GGUF file: it has {} bytes; get it again", where, bytes.left());
  const auto magic = bytes.between(0, kGgufMagic.size());
  bytes.skip(magic.size(), "the magic");
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

GgufEntry read_entry(GgufBytes& bytes) {
  GgufEntry entry;
  TensorInfo& info = entry.info;
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
  entry.begin = bytes.number<std::uint64_t>("a tensor's offset");
  return entry;
}

/// From offsets to places in the file: each tensor begins where the padded one before it ends.
void place_tensors(std::vector<GgufEntry>& tensors, std::uint64_t data, std::uint64_t alignment,
                   std::uint64_t file_bytes, const std::string& where) {
  std::uint64_t next = 0;  // from `data` on
  for (GgufEntry& entry : tensors) {
    const std::string name = shown(entry.info.name);
    if (entry.begin != next)
      fail("{}: tensor '{}' is declared at offset {}, but the one before it ends at {}", where,
           name, entry.begin, next);
    const Index numbers = entry.info.size(), block = block_numbers(entry.info.dtype);
    const std::uint64_t block_bytes = bytes_of(entry.info.dtype, block);
    const auto blocks = static_cast<std::uint64_t>(numbers / block);
    entry.begin += data;
    const std::uint64_t left = file_bytes > entry.begin ? file_bytes - entry.begin : 0;
    if (blocks > left / block_bytes)
      fail("{}: tensor '{}' reaches beyond the end of the file, which has {} bytes; get it again",
           where, name, file_bytes);
    entry.bytes = blocks * block_bytes;
    next = padded(next + entry.bytes, alignment);
  }
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
    header.tensors.push_back(read_entry(bytes));
    const std::string& name = header.tensors.back().info.name;
    if (!names.insert(name).second) fail("{}: tensor '{}' appears twice", where, shown(name));
  }
  place_tensors(header.tensors, padded(bytes.at(), alignment), alignment, file.size(), where);
  return header;
}

}  // namespace focus
