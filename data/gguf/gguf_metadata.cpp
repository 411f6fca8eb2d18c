#include "data/gguf/gguf_metadata.h"

#include <array>
#include <bit>
#include <charconv>
#include <limits>

#include "autograd/base/check.h"
#include "data/files/json_reader.h"

namespace focus {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read without byte swapping");

struct ValueType {
  const char* name;
  std::size_t bytes;  // at least, of one value
};
constexpr ValueType kValueTypes[] = {
    {"u8", 1},   {"i8", 1},     {"u16", 2},    {"i16", 2}, {"u32", 4}, {"i32", 4}, {"f32", 4},
    {"bool", 1}, {"string", 8}, {"array", 12}, {"u64", 8}, {"i64", 8}, {"f64", 8}};
/// A key of one letter, its length, a type, a value.
constexpr std::size_t kSmallestPair = 8 + 1 + 4 + 1;

const ValueType& value_type_of(GgufType type) {
  return kValueTypes[static_cast<std::size_t>(type)];
}

GgufType read_value_type(GgufBytes& bytes, const std::string& what) {
  const auto type = bytes.number<std::uint32_t>(what);
  if (type >= std::size(kValueTypes))
    fail("{}: {} has the unknown type {}; GGUF has the types 0 to {}", bytes.where(), what, type,
         std::size(kValueTypes) - 1);
  return static_cast<GgufType>(type);
}

/// What a float32 was written as: the shortest decimal that reads back to it.
double meant(float number) {
  std::array<char, 64> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), number);
  double value = static_cast<double>(number);
  if (error == std::errc()) std::from_chars(text.data(), end, value);
  return value;
}

/// What T may be read from: which types, what these are called, and how.
template <class T>
struct Kind;

template <>
struct Kind<std::string> {
  static constexpr const char *one = "a string", *several = "an array of string";
  static bool is(GgufType type) { return type == GgufType::string; }
  static std::string read(GgufBytes& bytes, GgufType) { return std::string(bytes.text(one)); }
};
template <>
struct Kind<std::int64_t> {
  static constexpr const char *one = "an integer", *several = "an array of integers";
  static bool is(GgufType type) {
    return type <= GgufType::i32 || type == GgufType::u64 || type == GgufType::i64;
  }
  static std::int64_t read(GgufBytes& bytes, GgufType type) {
    const std::span<const std::byte> stored = bytes.take(value_type_of(type).bytes, one);
    std::uint64_t value = 0;
    std::memcpy(&value, stored.data(), stored.size());
    const auto unused = 64 - 8 * static_cast<int>(stored.size());
    using enum GgufType;
    if (type == i8 || type == i16 || type == i32 || type == i64)
      return static_cast<std::int64_t>(value << unused) >> unused;
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      fail("{}: the integer {} is larger than 2^63; no setting is that large", bytes.where(),
           value);
    return static_cast<std::int64_t>(value);
  }
};
template <>
struct Kind<double> {
  static constexpr const char *one = "a number", *several = "an array of numbers";
  static bool is(GgufType type) {
    return Kind<std::int64_t>::is(type) || type == GgufType::f32 || type == GgufType::f64;
  }
  static double read(GgufBytes& bytes, GgufType type) {
    if (type == GgufType::f32) return meant(bytes.number<float>(one));
    if (type == GgufType::f64) return bytes.number<double>(one);
    return static_cast<double>(Kind<std::int64_t>::read(bytes, type));
  }
};
template <>
struct Kind<bool> {
  static constexpr const char *one = "a bool", *several = "an array of bool";
  static bool is(GgufType type) { return type == GgufType::boolean; }
  /// llama.cpp takes any byte but 0 for true.
  static bool read(GgufBytes& bytes, GgufType) { return bytes.number<std::uint8_t>(one) != 0; }
};

}  // namespace

std::span<const std::byte> GgufBytes::take(std::size_t bytes, std::string_view what) {
  if (bytes > left())
    fail("{}: the file ends at byte {}, within {}, which needs {} more; get it again", where_,
         bytes_.size(), what, bytes - left());
  at_ += bytes;
  return bytes_.subspan(at_ - bytes, bytes);
}

std::string_view GgufBytes::text(std::string_view what) {
  const auto text = take(number<std::uint64_t>(what), what);
  return {reinterpret_cast<const char*>(text.data()), text.size()};
}

std::size_t GgufBytes::count(std::size_t bytes_each, std::string_view what) {
  const auto count = number<std::uint64_t>(what);
  if (count > left() / bytes_each)
    fail("{}: {} is {}, more than the remaining {} bytes can hold; get the file again", where_,
         what, count, left());
  return count;
}

GgufMetadata::GgufMetadata(GgufBytes& bytes, std::size_t count) : where_(bytes.where()) {
  if (count > bytes.left() / kSmallestPair)
    fail("{}: it declares {} keys, more than the remaining {} bytes can hold", where_, count,
         bytes.left());
  const std::size_t begin = bytes.at();
  for (std::size_t i = 0; i < count; ++i) {
    const std::string key(bytes.text("a key"));
    if (key.empty()) fail("{}: key number {} is empty; a key has a name", where_, i + 1);
    Value value = skip_value(bytes, fmt::format("key '{}'", shown(key)));
    for (std::size_t* place : {&value.begin, &value.elements, &value.end}) *place -= begin;
    if (!values_.emplace(key, value).second) fail("{}: key '{}' appears twice", where_, shown(key));
  }
  const auto all = bytes.since(begin);
  bytes_.assign(all.begin(), all.end());
}

GgufMetadata::Value GgufMetadata::skip_value(GgufBytes& bytes, const std::string& what) const {
  Value value;
  value.begin = bytes.at();
  value.type = value.element = read_value_type(bytes, what);
  if (value.type == GgufType::array) {
    value.element = read_value_type(bytes, what);
    if (value.element == GgufType::array)
      fail("{}: {} is an array of arrays, which GGUF does not have", where_, what);
    value.count =
        bytes.count(value_type_of(value.element).bytes, what + ": the number of elements");
  }
  value.elements = bytes.at();
  if (value.element != GgufType::string)
    bytes.take(value.count * value_type_of(value.element).bytes, what);
  else
    for (std::size_t i = 0; i < value.count; ++i) bytes.text(what);
  value.end = bytes.at();
  return value;
}

std::vector<std::string> GgufMetadata::keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : values_) keys.push_back(key);
  return keys;
}

const GgufMetadata::Value* GgufMetadata::find(std::string_view key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

bool GgufMetadata::is_array(std::string_view key) const {
  const Value* value = find(key);
  return value != nullptr && value->type == GgufType::array;
}

std::span<const std::byte> GgufMetadata::stored(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) fail("{}: key '{}' is missing", where_, shown(std::string(key)));
  return std::span(bytes_).subspan(value->begin, value->end - value->begin);
}

template <class T>
std::optional<std::vector<T>> GgufMetadata::elements(std::string_view key, bool array) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if ((value->type == GgufType::array) != array || !Kind<T>::is(value->element)) {
    const char* element = value_type_of(value->element).name;
    fail("{}: key '{}' must be {}, not {}", where_, shown(key),
         array ? Kind<T>::several : Kind<T>::one,
         value->type == GgufType::array ? fmt::format("an array of {}", element) : element);
  }
  const std::string where = fmt::format("{}: key '{}'", where_, shown(key));
  GgufBytes bytes(std::span<const std::byte>(bytes_).subspan(value->elements), where);
  std::vector<T> all;
  all.reserve(value->count);
  for (std::size_t i = 0; i < value->count; ++i)
    all.push_back(Kind<T>::read(bytes, value->element));
  return all;
}

template std::optional<std::vector<std::string>> GgufMetadata::elements(std::string_view,
                                                                        bool) const;
template std::optional<std::vector<std::int64_t>> GgufMetadata::elements(std::string_view,
                                                                         bool) const;
template std::optional<std::vector<double>> GgufMetadata::elements(std::string_view, bool) const;
template std::optional<std::vector<bool>> GgufMetadata::elements(std::string_view, bool) const;

}  // namespace focus
