#include "data/tensors/store_digest.h"

#include <fmt/ranges.h>

#include <bit>

#include "data/files/checksum.h"

namespace focus {
namespace {

/// With its length in front, so that no two lists of texts give the same line.
std::string field(std::string_view text) { return fmt::format("{}:{}", text.size(), text); }

struct ValueText {
  std::string operator()(const std::string& value) const { return "string " + field(value); }
  std::string operator()(std::int64_t value) const { return fmt::format("int64 {}", value); }
  std::string operator()(std::uint64_t value) const { return fmt::format("uint64 {}", value); }
  std::string operator()(double value) const {
    return fmt::format("float64 {:016x}", std::bit_cast<std::uint64_t>(value));
  }
};

}  // namespace

void StoreDigest::add_dataset(std::string_view path, std::string_view type,
                              std::span<const Index> shape, std::string_view checksum) {
  lines_.insert(
      fmt::format("dataset {} {} [{}] {}\n", field(path), type, fmt::join(shape, ","), checksum));
}

void StoreDigest::add_attribute(std::string_view object, std::string_view name,
                                const AttributeValue& value) {
  lines_.insert(fmt::format("attribute {} {} {}\n", field(object), field(name),
                            std::visit(ValueText(), value)));
}

std::string StoreDigest::hex() const {
  Checksum checksum;
  for (const std::string& line : lines_) checksum.update(line);
  return checksum.hex();
}

}  // namespace focus
