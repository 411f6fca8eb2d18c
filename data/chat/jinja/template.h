#pragma once

#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "data/chat/jinja/budget.h"

/// An interpreter of Jinja 2 templates, as far as chat templates use it. What it leaves out it
/// refuses by name: other templates (extends, include, import, block), recursive loops, calls with
/// *arguments, escaping, and some filters (is_known_filter).
namespace focus::jinja {

struct Block;

/// A template that has been read. Like Jinja's with trim_blocks, lstrip_blocks, the extension of
/// loop controls and no escaping; in the immutable sandbox.
class Template {
 public:
  /// Throws std::runtime_error with one line: `where`, the line in the template, what is wrong.
  Template(const std::string& source, std::string where, const Limits& limits = {});

  /// The text for these variables (an object; null: none). `now` is the time that strftime_now()
  /// gives; empty: the present, of this place. `generated`, where not null, gets what generation
  /// blocks wrote. Throws std::runtime_error with one line likewise.
  std::string render(const nlohmann::ordered_json& variables,
                     std::optional<std::tm> now = std::nullopt,
                     TextRanges* generated = nullptr) const;

 private:
  std::shared_ptr<const Block> block_;
  std::string where_;
  Limits limits_;
};

}  // namespace focus::jinja
