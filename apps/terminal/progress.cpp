#include "apps/terminal/progress.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "autograd/base/check.h"
#include "autograd/base/profile.h"

namespace focus::app {
namespace {

constexpr double kSecondsBetweenDraws = 0.1;
constexpr std::size_t kBarWidth = 20;

}  // namespace

Progress::Progress(ProgressOptions options)
    : options_(std::move(options)), step_(options_.first_step), loss_(std::nan("")) {
  if (!options_.seconds) options_.seconds = now;
  finished_ = quiet_ = !spdlog::should_log(spdlog::level::info);
  terminal_ = options_.terminal.value_or(isatty(fileno(options_.stream)) == 1);
  start_ = options_.seconds();
  step_ = options_.first_step;
  last_drawn_ = terminal_ ? start_ - kSecondsBetweenDraws : start_;
  if (terminal_ && !quiet_) {  // the first step may take seconds
    draw();
    last_drawn_ = start_ - kSecondsBetweenDraws;
  }
}

Progress::~Progress() {
  try {
    finish();
  } catch (...) {  // a bar that cannot be drawn is no reason to end the program
  }
}

void Progress::update(std::int64_t step, double loss, std::int64_t tokens) {
  step_ = step;
  loss_ = loss;
  if (quiet_) return;
  tokens_ += tokens;
  shown_ = false;
  const double between = terminal_ ? kSecondsBetweenDraws : options_.seconds_between_lines;
  const bool last = step == options_.total_steps;
  if ((last && !terminal_ && !options_.inner) || options_.seconds() - last_drawn_ >= between)
    draw();
}

void Progress::note(std::string_view text) {
  if (quiet_) return;
  fmt::print(options_.stream, "{}{}\n", terminal_ ? "\r\x1b[K" : "", text);
  if (terminal_ && !finished_)
    draw();
  else
    std::fflush(options_.stream);
  last_drawn_ = options_.seconds();
}

void Progress::finish() {
  if (finished_) return;
  finished_ = true;
  if (options_.inner) {
    if (terminal_) fmt::print(options_.stream, "\r\x1b[K");
    std::fflush(options_.stream);
    return;
  }
  if (!shown_ || terminal_) draw();
  if (terminal_) fmt::print(options_.stream, "\n");
  std::fflush(options_.stream);
}

void Progress::draw() {
  if (terminal_) {
    std::string text = line(true);
    text.resize(std::min(text.size(), columns() - 1));  // a wrapped line cannot be redrawn
    fmt::print(options_.stream, "\r{}\x1b[K", text);
  } else {
    fmt::print(options_.stream, "{}\n", line(false));
  }
  std::fflush(options_.stream);
  last_drawn_ = options_.seconds();
  shown_ = true;
}

std::string Progress::line(bool with_bar) const {
  const std::int64_t total = options_.total_steps;
  const double share =
      total > 0 ? std::clamp(static_cast<double>(step_) / static_cast<double>(total), 0.0, 1.0) : 0;
  std::string text = options_.label;
  if (with_bar && total > 0) {
    const auto filled = static_cast<std::size_t>(share * kBarWidth);
    text += fmt::format(" [{:#<{}}{:-<{}}]", "", filled, "", kBarWidth - filled);
  }
  text += total > 0   ? fmt::format(" {}/{} {:.0f}%", step_, total, std::floor(100 * share))
          : step_ > 0 ? fmt::format(" {}", step_)
                      : "";
  if (!std::isnan(loss_)) text += fmt::format("  loss {:.4f}", loss_);

  const double elapsed = options_.seconds() - start_;
  if (tokens_ > 0 && elapsed > 0)
    text += fmt::format("  {} tok/s", format_count(static_cast<double>(tokens_) / elapsed));
  text += left();
  if (finished_) text += fmt::format("  took {}", format_duration(elapsed));
  return text;
}

std::string Progress::left() const {
  const double elapsed = options_.seconds() - start_;
  const std::int64_t steps = step_ - options_.first_step, ahead = options_.total_steps - step_;
  if (steps <= 0 || elapsed <= 0 || ahead <= 0) return "";
  return fmt::format("  left {}", format_duration(elapsed / static_cast<double>(steps) *
                                                  static_cast<double>(ahead)));
}

std::size_t Progress::columns() const {
  winsize size{};
  const bool known = ioctl(fileno(options_.stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return known ? size.ws_col : 100;
}

std::function<void(double)> share_bar(const std::string& label) {
  constexpr std::int64_t kSteps = 1000;
  const auto bar =
      std::make_shared<Progress>(ProgressOptions{.label = label, .total_steps = kSteps});
  return [bar](double share) {
    bar->update(static_cast<std::int64_t>(share * kSteps), std::nan(""), 0);
  };
}

}  // namespace focus::app
