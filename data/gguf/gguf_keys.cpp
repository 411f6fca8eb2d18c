#include "data/gguf/gguf_keys.h"

#include "autograd/base/check.h"

namespace focus {

void append_gguf_text(std::string& bytes, std::string_view text) {
  append_gguf<std::uint64_t>(bytes, text.size());
  bytes += text;
}

void GgufKeys::key(std::string_view key) {
  check(!key.empty(), "a key of a GGUF file has no name");
  check(keys_.emplace(key).second, "key '{}' of a GGUF file appears twice", key);
  append_gguf_text(bytes_, key);
}

void GgufKeys::key(std::string_view name, GgufType type) {
  key(name);
  append_gguf(bytes_, static_cast<std::uint32_t>(type));
}

void GgufKeys::array(std::string_view name, GgufType type, std::size_t count) {
  key(name, GgufType::array);
  append_gguf(bytes_, static_cast<std::uint32_t>(type));
  append_gguf<std::uint64_t>(bytes_, count);
}

void GgufKeys::text(std::string_view name, std::string_view value) {
  key(name, GgufType::string);
  append_gguf_text(bytes_, value);
}

void GgufKeys::u32(std::string_view name, std::uint32_t value) {
  key(name, GgufType::u32);
  append_gguf(bytes_, value);
}

void GgufKeys::f32(std::string_view name, float value) {
  key(name, GgufType::f32);
  append_gguf(bytes_, value);
}

void GgufKeys::flag(std::string_view name, bool value) {
  key(name, GgufType::boolean);
  append_gguf<std::uint8_t>(bytes_, value ? 1 : 0);
}

void GgufKeys::texts(std::string_view name, std::span<const std::string> values) {
  array(name, GgufType::string, values.size());
  for (const std::string& value : values) append_gguf_text(bytes_, value);
}

void GgufKeys::i32s(std::string_view name, std::span<const std::int32_t> values) {
  array(name, GgufType::i32, values.size());
  for (const std::int32_t value : values) append_gguf(bytes_, value);
}

void GgufKeys::f32s(std::string_view name, std::span<const float> values) {
  array(name, GgufType::f32, values.size());
  for (const float value : values) append_gguf(bytes_, value);
}

void GgufKeys::flags(std::string_view name, const std::vector<bool>& values) {
  array(name, GgufType::boolean, values.size());
  for (const bool value : values) append_gguf<std::uint8_t>(bytes_, value ? 1 : 0);
}

void GgufKeys::copy(const GgufMetadata& from, std::string_view name) {
  const std::span<const std::byte> value = from.stored(name);
  key(name);
  bytes_.append(reinterpret_cast<const char*>(value.data()), value.size());
}

}  // namespace focus
