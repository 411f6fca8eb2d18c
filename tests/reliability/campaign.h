#pragma once

#include <functional>
#include <numeric>

#include "autograd/base/random.h"
#include "tests/support/cli.h"

namespace focus {

/// How far the tests of reliability go: some cases of each kind, or with FOCUS_CAMPAIGN=long in the
/// environment every one. What the long form found is in docs/reliability.md.
inline bool whole_campaign() {
  static const char* const how = std::getenv("FOCUS_CAMPAIGN");
  return how != nullptr && std::string(how) == "long";
}

/// All of 1..count, or `few` of them, in the long form `many`: other ones for each name, the same
/// ones every time.
inline std::vector<int> some_of(int count, const std::string& name, int few,
                                int many = std::numeric_limits<int>::max()) {
  std::vector<int> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 1);
  if (whole_campaign()) few = many;
  if (count <= few) return numbers;
  Rng rng(std::hash<std::string>{}(name));
  for (std::size_t i = 0; i < static_cast<std::size_t>(few); ++i)
    std::swap(numbers[i], numbers[i + rng.below(numbers.size() - i)]);
  numbers.resize(few);
  std::ranges::sort(numbers);
  return numbers;
}

#ifdef FOCUS_SANITIZED
/// The sanitizers want terabytes of addresses and pipes of their own: no limit can be kept.
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// A launcher: a shell that sets a limit and then becomes the command.
inline Words limited(const std::string& limit) {
  return {"/bin/sh", "-c", limit + R"(; exec "$@")", "sh"};
}

/// A launcher: no more addresses than so many kilobytes, but with sanitizers.
inline Words in_address_space(int kilobytes) {
  return kSanitized ? Words{} : limited(fmt::format("ulimit -v {}", kilobytes));
}

using Environment = std::vector<std::pair<std::string, std::string>>;

/// A run behind the words of a launcher, with its environment.
inline ProcessResult run_by(const Words& launcher, const Words& command,
                            const Environment& environment = {}, double seconds = kRunSeconds) {
  return cli().start_by(launcher, command, environment)->wait(seconds);
}
/// One that the test needs.
inline void must_run_by(const Words& launcher, const Words& command,
                        const Environment& environment = {}) {
  const ProcessResult result = run_by(launcher, command, environment);
  if (result.status != 0 || result.timed_out) throw std::runtime_error(result.err);
}

/// What a command makes, once.
inline const std::string& made_once(const std::string& name, const Words& command,
                                    const std::string& option = "--out") {
  static std::map<std::string, std::string> made;
  std::string& out = made[name];
  if (out.empty()) {
    out = cli().fresh(name);
    cli().must_run(command + Words{option, out});
  }
  return out;
}

}  // namespace focus
