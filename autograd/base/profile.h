#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace focus {

/// While one lives, the marks of its thread say where a pass spends its time: each mark adds the
/// seconds since the one before it (or since the start) to its name. Every op marks its name when
/// its value is there, and its name with " backward" when its backward function has run, so that
/// the whole of a step is covered; ops with phases mark these too. Without a Profile a mark is one
/// branch.
class Profile {
 public:
  struct Entry {
    std::string name;
    double seconds = 0;
    std::int64_t calls = 0;
  };

  /// Starts the clock. Throws std::invalid_argument where this thread has a Profile already.
  Profile();
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  /// In the order of their first marks.
  const std::vector<Entry>& entries() const { return entries_; }
  /// 0 for a name that was never marked.
  double seconds(std::string_view name) const;
  void mark(std::string_view name, std::string_view suffix);
  /// Gives `seconds` of the stretch that is running to a name of their own.
  void split(std::string_view name, double seconds);

 private:
  void add(std::string_view name, std::string_view suffix, double seconds);

  std::vector<Entry> entries_;
  double last_ = 0;  // seconds of the steady clock at the last mark
};

namespace detail {
extern constinit thread_local Profile* profile;
}

/// Whether this thread has a Profile.
inline bool profiling() { return detail::profile != nullptr; }

/// Ends the stretch `name` + `suffix` on this thread's Profile, if there is one.
inline void profile_mark(const char* name, const char* suffix = "") {
  if (detail::profile != nullptr) [[unlikely]]
    detail::profile->mark(name, suffix);
}

/// Gives a part of the stretch that is running a name of its own: what threads measured in it.
inline void profile_split(const char* name, double seconds) {
  if (detail::profile != nullptr) [[unlikely]]
    detail::profile->split(name, seconds);
}

/// Seconds of the steady clock, which no change of the time of day moves: for differences alone.
inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace focus
