#pragma once

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <sstream>
#include <string>

namespace focus {

/// What notice() prints while this lives. A process prints a line once: each test needs lines of
/// its own.
class Notices {
 public:
  Notices() : before_(spdlog::default_logger()) {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "notices", std::make_shared<spdlog::sinks::ostream_sink_mt>(lines_)));
    spdlog::set_pattern("%v");
  }
  ~Notices() { spdlog::set_default_logger(before_); }
  Notices(const Notices&) = delete;
  Notices& operator=(const Notices&) = delete;

  std::string text() const { return lines_.str(); }

 private:
  std::ostringstream lines_;
  std::shared_ptr<spdlog::logger> before_;
};

}  // namespace focus
