#include "data/tensors/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <unordered_set>

#include "autograd/base/check.h"
#include "data/files/json_reader.h"

namespace focus {
namespace {

constexpr std::size_t kMaxTensors = 1'000'000;
constexpr std::size_t kMaxNameBytes = 4096;
constexpr std::size_t kMaxRank = 64;
constexpr std::string_view kMetadata = "__metadata__";

struct StoredType {
  const char* name;
  unsigned bits;
  Dtype dtype;
};
constexpr std::array<StoredType, 22> kTypes = {{
    {"F64", 64, Dtype::f64},          {"F32", 32, Dtype::f32},
    {"F16", 16, Dtype::f16},          {"BF16", 16, Dtype::bf16},
    {"C64", 64, Dtype::other},        {"I64", 64, Dtype::other},
    {"U64", 64, Dtype::other},        {"I32", 32, Dtype::other},
    {"U32", 32, Dtype::other},        {"I16", 16, Dtype::other},
    {"U16", 16, Dtype::other},        {"I8", 8, Dtype::other},
    {"U8", 8, Dtype::other},          {"BOOL", 8, Dtype::other},
    {"F8_E4M3", 8, Dtype::other},     {"F8_E5M2", 8, Dtype::other},
    {"F8_E8M0", 8, Dtype::other},     {"F8_E4M3FNUZ", 8, Dtype::other},
    {"F8_E5M2FNUZ", 8, Dtype::other}, {"F4", 4, Dtype::other},
    {"F6_E2M3", 6, Dtype::other},     {"F6_E3M2", 6, Dtype::other},
}};

/// The header has one fixed form, so its events are followed by hand: that finds twice the same
/// key, numbers of the wrong kind and wrong nesting, all of which a parsed document hides.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(SafetensorsHeader& header, const std::string& file) : header_(header), file_(file) {}

  bool start_object(std::size_t) override {
    switch (state_) {
      case State::start:
        state_ = State::names;
        return true;
      case State::entry:
        state_ = name_ == kMetadata ? State::metadata : State::fields;
        fields_.clear();
        return true;
      default:
        return unexpected("an object");
    }
  }

  bool key(std::string& text) override {
    switch (state_) {
      case State::names:
        if (text.size() > kMaxNameBytes) {
          fail("{}: the tensor name '{}' has {} bytes, more than {}", file_, shown(text),
               text.size(), kMaxNameBytes);
        }
        if (!names_.insert(text).second)
          fail("{}: '{}' appears twice in the header", file_, shown(text));
        if (names_.size() > kMaxTensors) fail("{}: more than {} tensors", file_, kMaxTensors);
        name_ = text;
        if (name_ != kMetadata) {
          header_.tensors.emplace_back();
          header_.tensors.back().info.name = name_;
        }
        state_ = State::entry;
        return true;
      case State::fields:
        if (!fields_.insert(text).second)
          fail("{}: field '{}' appears twice", where(), shown(text));
        if (text == "dtype") {
          state_ = State::dtype;
        } else if (text == "shape") {
          state_ = State::shape;
        } else if (text == "data_offsets") {
          state_ = State::offsets;
        } else {
          fail("{}: unknown field '{}'; the format has dtype, shape and data_offsets", where(),
               shown(text));
        }
        return true;
      case State::metadata:
        if (!fields_.insert(text).second) fail("{}: key '{}' appears twice", where(), shown(text));
        field_ = text;
        return true;
      default:
        return unexpected("a key");
    }
  }

  bool end_object() override {
    if (state_ == State::fields) {
      for (const char* wanted : {"dtype", "shape", "data_offsets"}) {
        if (!fields_.contains(wanted)) fail("{}: field '{}' is missing", where(), wanted);
      }
      state_ = State::names;
    } else if (state_ == State::metadata) {
      state_ = State::names;
    } else {
      state_ = State::done;
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if ((state_ != State::shape && state_ != State::offsets) || in_array_) {
      return unexpected("an array");
    }
    in_array_ = true;
    numbers_.clear();
    return true;
  }

  bool end_array() override {
    in_array_ = false;
    SafetensorsEntry& entry = header_.tensors.back();
    if (state_ == State::shape) {
      if (numbers_.size() > kMaxRank)
        fail("{}: {} dimensions are too many", where(), numbers_.size());
      for (const std::uint64_t dim : numbers_) {
        if (dim > static_cast<std::uint64_t>(std::numeric_limits<Index>::max())) {
          fail("{}: dimension {} is too large", where(), dim);
        }
        entry.info.shape.push_back(static_cast<Index>(dim));
      }
    } else {
      if (numbers_.size() != 2) {
        fail("{}: data_offsets must be [begin, end], but holds {} numbers", where(),
             numbers_.size());
      }
      entry.begin = numbers_[0];
      entry.end = numbers_[1];
      if (entry.begin > entry.end) {
        fail("{}: data_offsets begin at {}, after their end {}", where(), entry.begin, entry.end);
      }
    }
    state_ = State::fields;
    return true;
  }

  bool string(std::string& text) override {
    if (state_ == State::dtype) {
      header_.tensors.back().info.stored_as = text;
      state_ = State::fields;
      return true;
    }
    if (state_ == State::metadata) {
      header_.metadata.emplace(field_, text);
      return true;
    }
    return unexpected("a string");
  }

  bool number_unsigned(std::uint64_t value) override {
    if (!in_array_) return unexpected("a number");
    // Neither list needs more; without a bound a hostile header fills the memory with numbers.
    if (numbers_.size() <= kMaxRank) numbers_.push_back(value);
    return true;
  }
  bool number_integer(std::int64_t) override { return unexpected("a negative number"); }
  bool number_float(double, const std::string& text) override {
    return unexpected(
        fmt::format("the number {}, which is not a whole number below 2^64,", shown(text)));
  }
  bool boolean(bool) override { return unexpected("true or false"); }
  bool null() override { return unexpected("null"); }
  bool binary(nlohmann::json::binary_t&) override { return unexpected("binary data"); }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception& error) override {
    // The library's text may quote the file over several lines.
    const std::string text = error.what();
    fail("{}: the header is not JSON at its byte {}: {}", file_, position,
         shown(text.substr(0, text.find('\n'))));
  }

 private:
  enum class State { start, names, entry, fields, dtype, shape, offsets, metadata, done };

  std::string where() const {
    return fmt::format("{}: {} '{}'", file_, name_ == kMetadata ? "header entry" : "tensor",
                       shown(name_));
  }
  [[noreturn]] bool unexpected(std::string_view what) const {
    const std::string place = names_.empty() ? file_ : where();
    switch (state_) {
      case State::start:
        fail("{}: the header must be a JSON object, not {}", place, what);
      case State::entry:
        fail("{}: expected an object, not {}", place, what);
      case State::dtype:
        fail("{}: dtype must be a string, not {}", place, what);
      case State::shape:
        fail("{}: shape must be a list of whole numbers from 0, not {}", place, what);
      case State::offsets:
        fail("{}: data_offsets must be two whole numbers from 0, not {}", place, what);
      case State::metadata:
        fail("{}: the values must be strings, not {}", place, what);
      default:
        fail("{}: the header holds {} where none is allowed", place, what);
    }
  }

  SafetensorsHeader& header_;
  const std::string& file_;
  State state_ = State::start;
  bool in_array_ = false;
  std::string name_;
  std::string field_;
  std::unordered_set<std::string> names_;
  std::set<std::string> fields_;
  std::vector<std::uint64_t> numbers_;
};

/// Checks the declared bytes against the shape and sets the type.
void check_size(SafetensorsEntry& entry, const std::string& file) {
  const auto type = std::find_if(kTypes.begin(), kTypes.end(), [&](const StoredType& t) {
    return entry.info.stored_as == t.name;
  });
  entry.info.dtype = type == kTypes.end() ? Dtype::other : type->dtype;
  std::uint64_t elements = 1;
  for (const Index dim : entry.info.shape) {
    if (__builtin_mul_overflow(elements, static_cast<std::uint64_t>(dim), &elements) ||
        elements > static_cast<std::uint64_t>(std::numeric_limits<Index>::max())) {
      fail("{}: tensor '{}': the product of its shape does not fit 64 bits", file,
           shown(entry.info.name));
    }
  }
  if (type == kTypes.end()) return;  // a type of the future: its size is unknown
  std::uint64_t bits = 0;
  if (__builtin_mul_overflow(elements, std::uint64_t{type->bits}, &bits)) {
    fail("{}: tensor '{}': the size of its shape does not fit 64 bits", file,
         shown(entry.info.name));
  }
  if (bits % 8 != 0 || bits / 8 != entry.end - entry.begin) {
    fail("{}: tensor '{}': its shape and {} need {} bytes, but data_offsets hold {}", file,
         shown(entry.info.name), type->name, (bits + 7) / 8, entry.end - entry.begin);
  }
}

/// The tensors must tile the data: no gap (a hiding place), no overlap, nothing left over.
void check_tiling(const std::vector<SafetensorsEntry>& tensors, std::uint64_t data_bytes,
                  const std::string& file) {
  std::vector<const SafetensorsEntry*> by_offset;
  for (const SafetensorsEntry& entry : tensors) by_offset.push_back(&entry);
  std::sort(by_offset.begin(), by_offset.end(), [](const auto* a, const auto* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  std::uint64_t end = 0;
  for (const SafetensorsEntry* entry : by_offset) {
    if (entry->begin != end) {
      fail("{}: tensor '{}' begins at byte {} of the data, but the one before it ends at {}: {}",
           file, shown(entry->info.name), entry->begin, end,
           entry->begin > end ? "there is a gap" : "they overlap");
    }
    end = entry->end;
    if (end > data_bytes) {
      fail(
          "{}: tensor '{}' ends at byte {} of the data, but the file holds only {}: it was cut "
          "short; "
          "get it again",
          file, shown(entry->info.name), end, data_bytes);
    }
  }
  if (end != data_bytes) {
    fail("{}: {} bytes follow the last tensor; the format allows none", file, data_bytes - end);
  }
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t data_bytes,
                                           const std::string& file) {
  if (json.empty() || json[0] != '{') fail("{}: the header does not start with '{{'", file);
  // Spaces may pad the header, other white space may not.
  if (json.find_last_not_of(' ') != json.rfind('}')) {
    fail("{}: the header does not end with '}}' and spaces", file);
  }
  SafetensorsHeader header;
  HeaderReader reader(header, file);
  nlohmann::json::sax_parse(json, &reader);
  for (SafetensorsEntry& entry : header.tensors) check_size(entry, file);
  check_tiling(header.tensors, data_bytes, file);
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const auto& a, const auto& b) { return a.info.name < b.info.name; });
  return header;
}

}  // namespace focus
