#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace focus {

/// Calls f(name, member) for each member, with the names of a list as FOCUS_MEMBERS writes it.
template <class F, class... Members>
void visit_members(F& f, std::string_view names, Members&... members) {
  const auto next = [&] {
    const std::string_view name = names.substr(0, names.find(','));
    names.remove_prefix(std::min(name.size() + 2, names.size()));  // ", "
    return std::string(name.substr(name.rfind('.') + 1));
  };
  (f(next(), members), ...);
}

}  // namespace focus

/// In the visit(f) of a struct: f("a", a), f("b", b) for members a and b; `part.a` is called "a".
#define FOCUS_MEMBERS(f, ...) ::focus::visit_members(f, #__VA_ARGS__, __VA_ARGS__)
