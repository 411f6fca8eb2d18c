#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

namespace focus::jinja {

/// What ends a rendering: a fault of the template, or a limit. `Template` adds file and line.
struct TemplateError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Throws a TemplateError with the formatted text.
template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) {
  throw TemplateError(fmt::format(text, std::forward<Args>(args)...));
}

/// Parts of a text: from the first byte to the one behind the last.
using TextRanges = std::vector<std::pair<std::size_t, std::size_t>>;

/// What a template may use: it comes with a model, from whoever made that.
struct Limits {
  std::size_t source = std::size_t{1} << 20;  // bytes of the template
  std::size_t steps = 20'000'000;             // evaluations, and pieces of work inside one
  std::size_t bytes = std::size_t{1} << 27;   // of all texts, lists and mappings made on the way
  std::size_t output = std::size_t{1} << 25;  // bytes of the rendered text
};

/// Levels of brackets and blocks in a template, of evaluations in progress (a macro that calls
/// itself), and of lists in lists.
inline constexpr int kMostSourceDepth = 200;
inline constexpr int kMostEvaluationDepth = 1000;
inline constexpr int kMostValueDepth = 200;
/// Counts one level until its end.
class Nesting {
 public:
  Nesting(int& depth, int most, std::string_view what) : depth_(depth) {
    if (depth >= most) refuse("{} deeper than {} levels", what, most);
    ++depth;
  }
  ~Nesting() { --depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  int& depth_;
};

/// Numbers that range() may give, as in Jinja's sandbox.
inline constexpr std::int64_t kMostRange = 100000;

/// Counts what a rendering has used, and ends it at the limits.
class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits) {}

  void step(std::size_t steps = 1) {
    steps_ += steps;
    if (steps_ > limits_.steps || steps > limits_.steps)
      refuse("the template takes more than {} steps", limits_.steps);
  }
  /// Reading that many bytes.
  void scan(std::size_t bytes) { step(1 + bytes / 64); }
  /// Making that many bytes.
  void make(std::size_t bytes) {
    bytes_ += bytes;
    if (bytes_ > limits_.bytes || bytes > limits_.bytes)
      refuse("the template makes more than {} bytes of texts and lists", limits_.bytes);
  }
  const Limits& limits() const { return limits_; }

 private:
  Limits limits_;
  std::size_t steps_ = 0, bytes_ = 0;
};

}  // namespace focus::jinja
