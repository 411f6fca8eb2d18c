#include "data/gguf/gguf_metadata.h"

#include <array>
#include <bit>
#include <charconv>
#include <cstring>
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
constexpr std::array<ValueType, 13> kValueTypes = {{{"u8", 1},
                                                    {"i8", 1},
                                                    {"u16", 2},
                                                    {"i16", 2},
                                                    {"u32", 4},
                                                    {"i32", 4},
                                                    {"f32", 4},
                                                    {"bool", 1},
                                                    {"string", 8},
                                                    {"array", 12},
                                                    {"u64", 8},
                                                    {"i64", 8},
                                                    {"f64", 8}}};
/// A key of one letter, its length, a type, a value.
constexpr std::size_t kSmallestPair = 8 + 1 + 4 + 1;

const ValueType& value_type_of(GgufType type) {
  return kValueTypes[static_cast<std::size_t>(type)];
}

bool is_integer_type(GgufType type) {
  return type <= GgufType::i32 || type == GgufType::u64 || type == GgufType::i64;
}
bool is_number_type(GgufType type) {
  return is_integer_type(type) || type == GgufType::f32 || type == GgufType::f64;
}
bool is_flag_type(GgufType type) { return type == GgufType::boolean; }
bool is_text_type(GgufType type) { return type == GgufType::string; }

GgufType read_value_type(GgufBytes& bytes, const std::string& what) {
  const auto type = bytes.number<std::uint32_t>(what);
  if (type >= kValueTypes.size())
    fail("{}: {} has the unknown type {}; GGUF has the types 0 to {}", bytes.where(), what, type,
         kValueTypes.size() - 1);
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

std::int64_t read_integer_value(GgufBytes& bytes, GgufType type) {
  constexpr std::string_view what = "an integer";
  switch (type) {
    case GgufType::u8:
      return bytes.number<std::uint8_t>(what);
    case GgufType::i8:
      return bytes.number<std::int8_t>(what);
    case GgufType::u16:
      return bytes.number<std::uint16_t>(what);
    case GgufType::i16:
      return bytes.number<std::int16_t>(what);
    case GgufType::u32:
      return bytes.number<std::uint32_t>(what);
    case GgufType::i32:
      return bytes.number<std::int32_t>(what);
    case GgufType::i64:
      return bytes.number<std::int64_t>(what);
    default:
      break;
  }
  const auto value = bytes.number<std::uint64_t>(what);
  if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    fail("{}: the integer {} is larger than 2^63; no setting is that large", bytes.where(), value);
  return static_cast<std::int64_t>(value);
}

double read_number_value(GgufBytes& bytes, GgufType type) {
  if (type == GgufType::f32) return meant(bytes.number<float>("a number"));
  if (type == GgufType::f64) return bytes.number<double>("a number");
  return static_cast<double>(read_integer_value(bytes, type));
}

}  // namespace

template <class T>
T GgufBytes::number(std::string_view what) {
  const std::size_t begin = at_;
  skip(sizeof(T), what);
  T value;
  std::memcpy(&value, bytes_.data() + begin, sizeof(T));
  return value;
}
template std::uint32_t GgufBytes::number(std::string_view);
template std::uint64_t GgufBytes::number(std::string_view);

void GgufBytes::skip(std::size_t bytes, std::string_view what) {
  if (bytes > left())
    fail("{}: the file ends at byte {}, within {}, which needs {} more; get it again", where_,
         bytes_.size(), what, bytes - left());
  at_ += bytes;
}

std::string_view GgufBytes::text(std::string_view what) {
  const auto size = number<std::uint64_t>(what);
  const std::size_t begin = at_;
  skip(size, what);
  return {reinterpret_cast<const char*>(bytes_.data() + begin), size};
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
    const std::size_t stored_begin = bytes.at();
    Value value = skip_value(bytes, fmt::format("key '{}'", shown(key)));
    value.begin -= begin;
    value.stored_begin = stored_begin - begin;
    value.stored_end = bytes.at() - begin;
    if (!values_.emplace(key, value).second) fail("{}: key '{}' appears twice", where_, shown(key));
  }
  const auto all = bytes.between(begin, bytes.at());
  bytes_.assign(all.begin(), all.end());
}

GgufMetadata::Value GgufMetadata::skip_value(GgufBytes& bytes, const std::string& what) const {
  Value value;
  value.type = value.element = read_value_type(bytes, what);
  if (value.type == GgufType::array) {
    value.element = read_value_type(bytes, what);
    if (value.element == GgufType::array)
      fail("{}: {} is an array of arrays, which GGUF does not have", where_, what);
    value.count =
        bytes.count(value_type_of(value.element).bytes, what + ": the number of elements");
  }
  value.begin = bytes.at();
  if (value.element != GgufType::string)
    bytes.skip(value.count * value_type_of(value.element).bytes, what);
  else
    for (std::size_t i = 0; i < value.count; ++i) bytes.text(what);
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
  const std::span<const std::byte> all = bytes_;
  return all.subspan(value->stored_begin, value->stored_end - value->stored_begin);
}

void GgufMetadata::fail_type(std::string_view key, const Value& value,
                             std::string_view wanted) const {
  const char* element = value_type_of(value.element).name;
  fail("{}: key '{}' must be {}, not {}", where_, shown(key), wanted,
       value.type == GgufType::array ? fmt::format("an array of {}", element) : element);
}

template <class Is, class Read>
auto GgufMetadata::elements(std::string_view key, bool array, std::string_view wanted, Is is,
                            Read read) const
    -> std::optional<std::vector<decltype(read(std::declval<GgufBytes&>(), GgufType()))>> {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if ((value->type == GgufType::array) != array || !is(value->element))
    fail_type(key, *value, wanted);
  const std::string where = fmt::format("{}: key '{}'", where_, shown(key));
  const std::span<const std::byte> stored = bytes_;
  GgufBytes bytes(stored.subspan(value->begin), where);
  std::vector<decltype(read(bytes, GgufType()))> all;
  all.reserve(value->count);
  for (std::size_t i = 0; i < value->count; ++i) all.push_back(read(bytes, value->element));
  return all;
}

template <class T>
std::optional<T> GgufMetadata::only(std::optional<std::vector<T>> values) {
  return values ? std::optional<T>(values->front()) : std::nullopt;
}

namespace {

std::string read_text_value(GgufBytes& bytes, GgufType) {
  return std::string(bytes.text("a string"));
}
/// llama.cpp takes any byte but 0 for true.
bool read_flag_value(GgufBytes& bytes, GgufType) {
  return bytes.number<std::uint8_t>("a bool") != 0;
}

}  // namespace

std::optional<std::string> GgufMetadata::text(std::string_view key) const {
  return only(elements(key, false, "a string", is_text_type, read_text_value));
}
std::optional<std::int64_t> GgufMetadata::integer(std::string_view key) const {
  return only(elements(key, false, "an integer", is_integer_type, read_integer_value));
}
std::optional<double> GgufMetadata::number(std::string_view key) const {
  return only(elements(key, false, "a number", is_number_type, read_number_value));
}
std::optional<bool> GgufMetadata::flag(std::string_view key) const {
  return only(elements(key, false, "a bool", is_flag_type, read_flag_value));
}
std::optional<std::vector<std::string>> GgufMetadata::texts(std::string_view key) const {
  return elements(key, true, "an array of string", is_text_type, read_text_value);
}
std::optional<std::vector<std::int64_t>> GgufMetadata::integers(std::string_view key) const {
  return elements(key, true, "an array of integers", is_integer_type, read_integer_value);
}
std::optional<std::vector<double>> GgufMetadata::numbers(std::string_view key) const {
  return elements(key, true, "an array of numbers", is_number_type, read_number_value);
}
std::optional<std::vector<bool>> GgufMetadata::flags(std::string_view key) const {
  return elements(key, true, "an array of bool", is_flag_type, read_flag_value);
}

}  // namespace focus
