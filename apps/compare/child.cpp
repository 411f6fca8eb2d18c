#include "apps/compare/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>

#include "apps/mpi.h"
#include "data/files/durable_file.h"

namespace focus::app {

ChildResult run_child(const std::vector<std::string>& arguments, const std::filesystem::path& log,
                      const std::function<int()>& tick) {
  const int output = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (output < 0) fail_writing("write", log, errno);
  // Made before the fork: between fork and exec no memory may be taken.
  std::vector<std::string> words = {"focus"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::vector<char*> variables;
  for (char** variable = environ; *variable != nullptr; ++variable)
    if (!is_of_launcher(*variable)) variables.push_back(*variable);
  variables.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) {
    const int error = errno;
    close(output);
    fail_writing("start a process that logs to", log, error);
  }
  if (pid == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(127);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    execve("/proc/self/exe", argv.data(), variables.data());
    _exit(127);
  }
  close(output);
  bool passed_on = false;
  int status = 0;
  rusage usage{};
  while (wait4(pid, &status, WNOHANG, &usage) == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (const int signal = tick(); signal != 0 && !passed_on) {
      kill(pid, signal);
      passed_on = true;
    }
  }
  return {.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .peak_bytes = static_cast<std::int64_t>(usage.ru_maxrss) * 1024};
}

}  // namespace focus::app
