#include "data/gguf/gguf_writer.h"

#include <algorithm>

#include "autograd/base/check.h"

namespace focus {
namespace fs = std::filesystem;
namespace {

constexpr std::uint32_t kVersion = 3;
constexpr std::size_t kAlignment = 32;    // where no key says another
constexpr std::size_t kLongestName = 63;  // llama.cpp's

/// A number as it lies in a GGUF file.
template <class T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

/// A length as u64 and the text's bytes.
void append_text(std::string& bytes, std::string_view text) {
  append<std::uint64_t>(bytes, text.size());
  bytes += text;
}

/// All before the tensors' numbers.
std::string make_head(const std::string& path, const GgufKeys& keys,
                      const std::vector<AnnouncedTensor>& tensors) {
  std::string head(kGgufMagic);
  append(head, kVersion);
  append<std::uint64_t>(head, tensors.size());
  append<std::uint64_t>(head, keys.count());
  head += keys.bytes();
  std::uint64_t offset = 0;
  std::set<std::string> names;
  for (const AnnouncedTensor& tensor : tensors) {
    const std::string& name = tensor.name;
    const auto dims = tensor.shape.dims();
    check(!name.empty() && name.size() <= kLongestName,
          "{}: tensor '{}': a name in a GGUF file has 1 to {} bytes", path, name, kLongestName);
    check(!dims.empty() && dims.size() <= 4,
          "{}: tensor '{}' has {} dimensions; GGUF supports 1 to 4", path, name, dims.size());
    check(dims.back() % block_numbers(tensor.dtype) == 0,
          "{}: tensor '{}': rows of {} values do not fill whole blocks of {}", path, name,
          dims.back(), name_of(tensor.dtype));
    check(names.insert(name).second, "{}: tensor '{}' appears twice", path, name);
    append_text(head, name);
    append(head, static_cast<std::uint32_t>(dims.size()));
    for (std::size_t i = dims.size(); i-- > 0;) append(head, static_cast<std::uint64_t>(dims[i]));
    append(head, ggml_type_of(tensor.dtype).number);
    append(head, offset);
    const std::size_t bytes = bytes_of(tensor.dtype, tensor.shape.size());
    offset += bytes + padding_after(bytes, kAlignment);
  }
  head.resize(head.size() + padding_after(head.size(), kAlignment), '\0');
  return head;
}

}  // namespace

void GgufKeys::key(std::string_view key) {
  check(!key.empty(), "a key of a GGUF file has no name");
  check(keys_.emplace(key).second, "key '{}' of a GGUF file appears twice", key);
  append_text(bytes_, key);
}

template <class T>
void GgufKeys::number(std::string_view name, GgufType type, T value) {
  key(name);
  append(bytes_, type);
  append(bytes_, value);
}

template <class T, class Values>
void GgufKeys::array(std::string_view name, GgufType type, const Values& values) {
  number(name, GgufType::array, type);
  append<std::uint64_t>(bytes_, values.size());
  for (const auto& value : values)
    if constexpr (std::is_same_v<T, std::string>)
      append_text(bytes_, value);
    else
      append<T>(bytes_, value);
}

void GgufKeys::text(std::string_view name, std::string_view value) {
  number<std::uint64_t>(name, GgufType::string, value.size());
  bytes_ += value;
}
void GgufKeys::u32(std::string_view name, std::uint32_t value) {
  number(name, GgufType::u32, value);
}
void GgufKeys::f32(std::string_view name, float value) { number(name, GgufType::f32, value); }
void GgufKeys::flag(std::string_view name, bool value) {
  number<std::uint8_t>(name, GgufType::boolean, value ? 1 : 0);
}
void GgufKeys::texts(std::string_view name, std::span<const std::string> values) {
  array<std::string>(name, GgufType::string, values);
}
void GgufKeys::i32s(std::string_view name, std::span<const std::int32_t> values) {
  array<std::int32_t>(name, GgufType::i32, values);
}
void GgufKeys::f32s(std::string_view name, std::span<const float> values) {
  array<float>(name, GgufType::f32, values);
}
void GgufKeys::flags(std::string_view name, const std::vector<bool>& values) {
  array<std::uint8_t>(name, GgufType::boolean, values);
}

void GgufKeys::copy(const GgufMetadata& from, std::string_view name) {
  const std::span<const std::byte> value = from.stored(name);
  key(name);
  bytes_.append(reinterpret_cast<const char*>(value.data()), value.size());
}

const GgmlType& ggml_type_of(Dtype dtype) {
  constexpr Dtype kWritten[] = {Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::q8_0};
  const auto types = ggml_types();
  const auto found = std::ranges::find(types, dtype, &GgmlType::format);
  check(std::ranges::find(kWritten, dtype) != std::end(kWritten) && found != types.end(),
        "GGUF: {} cannot be written (f32, f16, bf16, q8_0 can)", name_of(dtype));
  return *found;
}

GgufWriter::GgufWriter(const fs::path& path, const GgufKeys& keys,
                       const std::vector<AnnouncedTensor>& tensors)
    : TensorFileWriter(path, make_head(path.string(), keys, tensors), tensors, kAlignment) {}

void GgufWriter::commit(const std::function<void(const GgufSource&)>& verify) {
  TensorFileWriter::commit([&](const fs::path& written) {
    const GgufSource source(written);
    if (verify) verify(source);
  });
}

}  // namespace focus
