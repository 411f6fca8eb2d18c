#include "data/chat/jinja/function.h"

#include <algorithm>

namespace focus::jinja {

Bound::Bound(std::string_view function, const Arguments& arguments,
             std::initializer_list<std::string_view> names, std::size_t required)
    : function_(function), values_(names.size()) {
  if (arguments.positional.size() > names.size())
    refuse("{}() takes at most {} arguments, not {}", function, names.size(),
           arguments.positional.size());
  std::ranges::copy(arguments.positional, values_.begin());
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::ranges::find(names, std::string_view(name));
    if (found == names.end()) refuse("{}() has no argument '{}'", function, name);
    std::optional<Value>& place = values_[static_cast<std::size_t>(found - names.begin())];
    if (place) refuse("{}() gets '{}' twice", function, name);
    place = value;
  }
  for (std::size_t i = 0; i < required; ++i)
    if (!values_[i]) refuse("{}() needs '{}'", function, *(names.begin() + i));
}

std::int64_t Bound::integer(std::size_t i, std::int64_t otherwise) const {
  if (!has(i)) return otherwise;
  if (!at(i).is_integral()) refuse("{}() needs an integer, not {}", function_, type_name(at(i)));
  return at(i).as_integer();
}

const std::string& Bound::string(std::size_t i) const {
  if (!at(i).is(Kind::string)) refuse("{}() needs a string, not {}", function_, type_name(at(i)));
  return at(i).as_string();
}

}  // namespace focus::jinja
