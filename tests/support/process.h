#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace focus {

/// What a program left behind.
struct ProcessResult {
  int status = 0;  // of exit; minus the signal's number where one ended it
  bool timed_out = false;
  std::string out, err;
};

/// A program started by its path. Its output goes to unnamed files: it never waits for a reader.
/// The destructor ends what still runs.
class Process {
 public:
  /// `environment` is set on top of this process's own.
  Process(const std::vector<std::string>& command,
          const std::vector<std::pair<std::string, std::string>>& environment)
      : out_(open_file()), err_(open_file()) {
    std::vector<char*> argv;
    for (const std::string& argument : command) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ < 0) throw std::runtime_error("cannot fork");
    if (pid_ == 0) {
      for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
      const int null = open("/dev/null", O_RDONLY);
      dup2(null, STDIN_FILENO);
      dup2(fileno(out_.get()), STDOUT_FILENO);
      dup2(fileno(err_.get()), STDERR_FILENO);
      execv(argv[0], argv.data());
      _exit(127);
    }
  }
  ~Process() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }

  void send(int signal) const {
    if (pid_ > 0) kill(pid_, signal);
  }

  /// Has it ended by itself by now?
  bool ended() {
    if (pid_ <= 0) return true;
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) != pid_) return false;
    pid_ = 0;
    result_.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    return true;
  }

  /// Waits; kills it after `seconds`.
  ProcessResult wait(double seconds) {
    if (!wait_until(seconds, [&] { return ended(); })) {
      result_.timed_out = true;
      send(SIGKILL);
      while (!ended()) pause_briefly();
    }
    result_.out = contents(out_.get());
    result_.err = contents(err_.get());
    return result_;
  }

  /// Looks again and again until `condition` holds; false where it does not in time.
  template <class Condition>
  static bool wait_until(double seconds, Condition&& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      pause_briefly();
    }
    return true;
  }

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  using File = std::unique_ptr<std::FILE, Closer>;

  static File open_file() {
    File file(std::tmpfile());
    if (!file) throw std::runtime_error("no temporary file for a program's output");
    fcntl(fileno(file.get()), F_SETFD, FD_CLOEXEC);
    return file;
  }
  static std::string contents(std::FILE* file) {
    std::string text;
    std::rewind(file);
    char buffer[4096];
    for (std::size_t n; (n = std::fread(buffer, 1, sizeof(buffer), file)) > 0;)
      text.append(buffer, n);
    return text;
  }
  static void pause_briefly() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }

  File out_, err_;
  pid_t pid_ = 0;
  ProcessResult result_;
};

}  // namespace focus
