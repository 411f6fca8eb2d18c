#include "autograd/base/profile.h"

#include <algorithm>

#include "autograd/base/check.h"

namespace focus {
constinit thread_local Profile* detail::profile = nullptr;

Profile::Profile() {
  check(detail::profile == nullptr, "profile: this thread has one already");
  detail::profile = this;
  last_ = now();
}
Profile::~Profile() { detail::profile = nullptr; }

double Profile::seconds(std::string_view name) const {
  const auto found = std::ranges::find(entries_, name, &Entry::name);
  return found == entries_.end() ? 0 : found->seconds;
}

void Profile::mark(std::string_view name, std::string_view suffix) {
  const double time = now();
  add(name, suffix, time - last_);
  last_ = time;
}

void Profile::split(std::string_view name, double seconds) {
  add(name, "", seconds);
  last_ += seconds;
}

void Profile::add(std::string_view name, std::string_view suffix, double seconds) {
  auto entry = std::ranges::find_if(entries_, [&](const Entry& e) {
    return e.name.size() == name.size() + suffix.size() && e.name.starts_with(name) &&
           e.name.ends_with(suffix);
  });
  if (entry == entries_.end())
    entry = entries_.insert(entry, {.name = std::string(name).append(suffix)});
  entry->seconds += seconds;
  ++entry->calls;
}

}  // namespace focus
