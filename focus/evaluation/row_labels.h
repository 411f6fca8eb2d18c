#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <string>
#include <string_view>

namespace focus {

/// The first two columns of a terminal's table of attentions, `name` and `routing` of its rows, as
/// wide as the longest of them.
class NameColumns {
 public:
  template <std::ranges::input_range Rows>
  explicit NameColumns(const Rows& rows) {
    for (const auto& row : rows) {
      name_ = std::max(name_, row.name.size());
      routing_ = std::max(routing_, row.routing.size());
    }
  }

  std::string line(std::string_view name, std::string_view routing) const {
    return fmt::format("{:<{}} {:<{}}", name, name_, routing, routing_);
  }

 private:
  std::size_t name_ = 25, routing_ = 22;
};

}  // namespace focus
