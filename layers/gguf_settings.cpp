#include "layers/gguf_settings.h"

#include <algorithm>
#include <cmath>

#include "autograd/base/check.h"
#include "data/files/json_reader.h"

namespace focus {

GgufSettings::GgufSettings(const GgufSource& source, std::string architecture)
    : source_(source), architecture_(std::move(architecture)) {}

std::string GgufSettings::key(std::string_view name) const {
  return fmt::format("{}.{}", architecture_, name);
}

void GgufSettings::fail_missing(std::string_view name) const {
  fail("{}: key {} is missing; convert the model again", where(), key(name));
}

Index GgufSettings::in_range(std::string_view name, std::int64_t value) const {
  if (value < 0 || value > std::int64_t{1} << 40)
    fail("{}: {} must be from 0 to 2^40, not {}", where(), key(name), value);
  return value;
}

Index GgufSettings::integer(std::string_view name) const {
  const auto value = source_.metadata().integer(key(name));
  if (!value) fail_missing(name);
  return in_range(name, *value);
}

Index GgufSettings::integer(std::string_view name, Index otherwise) const {
  return has(name) ? integer(name) : otherwise;
}

double GgufSettings::number(std::string_view name) const {
  const auto value = source_.metadata().number(key(name));
  if (!value) fail_missing(name);
  if (!std::isfinite(*value)) fail("{}: {} must be finite, not {}", where(), key(name), *value);
  return *value;
}

double GgufSettings::number(std::string_view name, double otherwise) const {
  return has(name) ? number(name) : otherwise;
}

bool GgufSettings::flag(std::string_view name, bool otherwise) const {
  return source_.metadata().flag(key(name)).value_or(otherwise);
}

std::string GgufSettings::text(std::string_view name, const std::string& otherwise) const {
  return shown(source_.metadata().text(key(name)).value_or(otherwise));
}

const TensorInfo* GgufSettings::tensor(std::string_view name) const { return source_.find(name); }

Index GgufSettings::of_all_layers(std::string_view name, Index layers) const {
  if (!source_.metadata().is_array(key(name))) return integer(name);
  const auto values = *source_.metadata().integers(key(name));
  if (static_cast<Index>(values.size()) != layers || values.empty())
    fail("{}: {} has {} values for {} layers", where(), key(name), values.size(), layers);
  if (std::ranges::any_of(values, [&](std::int64_t value) { return value != values.front(); }))
    fail("{}: {} differs between layers, which is not supported", where(), key(name));
  return in_range(name, values.front());
}

}  // namespace focus
