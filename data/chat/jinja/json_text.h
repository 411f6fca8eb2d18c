#pragma once

#include <optional>
#include <string>

#include "data/chat/jinja/value.h"

namespace focus::jinja {

/// What json.dumps() is told.
struct JsonStyle {
  bool ensure_ascii = false, sort_keys = false;
  std::optional<std::string> indent;  // of one level; empty: all in one line
  std::string between_items = ", ", after_key = ": ";
};

/// Python's json.dumps(). Refuses what it cannot write.
std::string to_json(Budget& budget, const Value& value, const JsonStyle& style);

}  // namespace focus::jinja
