#pragma once

#include <fstream>

#include "tests/support/cli.h"

// Several processes of the built program, started by mpirun.
namespace focus {

#ifdef FOCUS_MPIEXEC
inline const std::string kLauncher = FOCUS_MPIEXEC;
#else
inline const std::string kLauncher;
#endif

inline const std::vector<std::pair<std::string, std::string>> kLauncherEnvironment = {
    {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
    {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
    {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
    {"OMPI_MCA_hwloc_base_binding_policy", "none"},
    {"OMPI_MCA_mpi_yield_when_idle", "1"},
    {"ASAN_OPTIONS", "detect_leaks=0"}};  // OpenMPI's modules leak

/// Why there are no processes to test with; empty where there are. In some containers the launcher
/// starts nothing at all.
inline const std::string& no_launcher() {
  static const std::string why = [] {
    if (kLauncher.empty()) return "built without MPI (libopenmpi-dev)";
    const ProcessResult result =
        Process({kLauncher, "-n", "2", "/bin/true"}, kLauncherEnvironment).wait(kRunSeconds);
    return result.status == 0 && !result.timed_out ? "" : "mpirun starts no processes here";
  }();
  return why;
}
#define SKIP_WITHOUT_LAUNCHER() \
  if (!no_launcher().empty()) GTEST_SKIP() << no_launcher()

inline std::unique_ptr<Process> start_together(int processes, const Words& arguments) {
  return cli().start_by({kLauncher, "-n", std::to_string(processes)}, arguments,
                        kLauncherEnvironment);
}
inline ProcessResult run_together(int processes, const Words& arguments) {
  return start_together(processes, arguments)->wait(kRunSeconds);
}
inline ProcessResult must_run_together(int processes, const Words& arguments) {
  ProcessResult result = run_together(processes, arguments);
  if (result.status != 0 || result.timed_out)
    throw std::runtime_error(fmt::format("{} processes of focus {} ended with {}:\n{}{}", processes,
                                         arguments.at(0), result.status, result.out, result.err));
  return result;
}

/// The process of that rank among those that a launcher has started with `word` among their
/// arguments; 0 before it starts.
inline pid_t process_of_rank(const std::string& word, int rank) {
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const auto read = [&](const char* file) {
      std::ifstream stream(entry.path() / file, std::ios::binary);
      return std::string(std::istreambuf_iterator<char>(stream), {});
    };
    if (contains(read("cmdline"), word) &&
        contains(read("environ"), fmt::format("OMPI_COMM_WORLD_RANK={}", rank)))
      return static_cast<pid_t>(std::stol(name));
  }
  return 0;
}

/// Kills rank 1 of `together`, started with `word` among its arguments: all must end by that, and
/// the launcher must name it.
inline void kill_rank_1(Process& together, const std::string& word) {
  const pid_t victim = process_of_rank(word, 1);
  ASSERT_GT(victim, 0);
  kill(victim, SIGKILL);
  const ProcessResult killed = together.wait(kRunSeconds);
  EXPECT_FALSE(killed.timed_out);
  EXPECT_NE(killed.status, 0);
  EXPECT_TRUE(contains(killed.err, "rank 1")) << killed.err;
}

}  // namespace focus
