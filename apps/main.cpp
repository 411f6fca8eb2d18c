#include <fmt/format.h>
#include <fmt/ranges.h>
#include <omp.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <new>
#include <optional>

#include "apps/command.h"
#include "apps/mpi.h"
#include "autograd/base/check.h"
#include "autograd/base/memory.h"
#include "autograd/simd/kernels.h"
#include "data/files/durable_file.h"
#include "data/tensors/store.h"
#include "focus/version.h"

namespace focus::app {
namespace {

struct Command {
  std::string_view name;
  int (*run)(Arguments);
  std::string_view help;
  bool several = false;  // whether processes of mpirun can share it
};

constexpr std::array kCommands = {
    Command{"import", run_import,
            "converts a Hugging Face folder or a GGUF file to a checkpoint file"},
    Command{"export", run_export,
            "writes a Hugging Face folder, with a Focus adapter, or a GGUF file"},
    Command{"train", run_train, "trains by a config: retrofit, full, scratch or lora", true},
    Command{"eval", run_eval, "perplexity and benchmark scores by attention", true},
    Command{"score", run_score, "log-probabilities of continuations, for other programs"},
    Command{"fit", run_fit, "groups a frozen model's keys by k-means, without training"},
    Command{"merge", run_merge, "merges a LoRA adapter into the weights and evaluates both"},
    Command{"compare", run_compare, "trains and evaluates many runs: one table, one page"},
    Command{"generate", run_generate, "continues a prompt, with a KV cache stored by group"},
    Command{"serve", run_serve, "serves a model by OpenAI's API over HTTP"},
    Command{"logits", run_logits, "writes the logits and groups of one sequence"},
    Command{"info", run_info, "contents of a checkpoint file, folder or GGUF file; checksums"},
    Command{"leak-test", run_leak_test, "tests that no prediction depends on later tokens"},
    Command{"speed", run_speed, "speed of attention by length, of decoding, of a training step"},
    Command{"tokenizer", run_tokenizer, "trains a BPE; encodes and decodes text"},
    Command{"groups", run_groups, "statistics of a model's groups, as a page"},
    Command{"report", run_report, "one HTML page from runs and evaluations"},
    Command{"corpus", run_corpus, "writes the built-in text"},
};

std::string usage() {
  std::string text =
      "focus " FOCUS_VERSION
      ": train sparse attention on a CPU\n\nusage: focus COMMAND [ARGUMENTS]; focus COMMAND "
      "--help\n--log-level debug|info|warn|error|off sets the log level on stderr\n--threads N "
      "sets the number of threads (default: all of the machine)\n\n";
  for (const Command& command : kCommands)
    text += fmt::format("  {:<10} {}\n", command.name, command.help);
  return text;
}

/// Removes "NAME VALUE" or "NAME=VALUE" from the arguments, wherever it is, and returns the value.
std::optional<std::string> take_option(std::vector<std::string>& arguments, std::string_view name) {
  const auto option = std::ranges::find_if(
      arguments, [&](const std::string& word) { return word.substr(0, word.find('=')) == name; });
  if (option == arguments.end()) return std::nullopt;
  const bool joined = option->size() > name.size();
  const bool apart = !joined && option + 1 != arguments.end();
  const std::string value = joined ? option->substr(name.size() + 1) : apart ? option[1] : "";
  arguments.erase(option, option + (apart ? 2 : 1));
  return value;
}

void set_log_level(const std::string& level) {
  constexpr std::array<std::string_view, 5> kLevels = {"debug", "info", "warn", "error", "off"};
  if (std::ranges::find(kLevels, level) == kLevels.end())
    fail("--log-level {}: expected {}", level, fmt::join(kLevels, ", "));
  spdlog::set_level(spdlog::level::from_str(level));
}

int read_threads(const std::string& word) {
  RunConfig config;  // its key has the same range
  read_option(only(config_fields(config), {"threads"}).at(0), word);
  return config.threads;
}

/// libgomp's threads spin at every barrier, which slows small parallel loops down by factors if the
/// machine has other work. libgomp reads the spin count when it is loaded: the program starts
/// itself again with a short one, unless the user has set it.
void shorten_openmp_spin(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  setenv("GOMP_SPINCOUNT", "10000", 1);
  execv("/proc/self/exe", argv);  // returns only if it fails; then the program is slower
}

/// The kernel kills a process that exceeds its control group's memory. A limit of the process a
/// little below turns that into an allocation that fails, which can be reported. Throws
/// std::bad_alloc if the group has no room for the program itself.
void keep_to_control_groups() {
  const std::optional<std::size_t> room = room_in_control_groups();
  rlimit data{}, stack{};
  if (!room || getrlimit(RLIMIT_DATA, &data) != 0 || getrlimit(RLIMIT_STACK, &stack) != 0) return;
  // The limit counts whole stacks of threads; glibc uses this size if the first thread's stack has
  // no limit.
  constexpr rlim_t kStack = 2 << 20;
  const rlim_t of_thread = stack.rlim_cur == RLIM_INFINITY ? kStack : stack.rlim_cur;
  const rlim_t stacks = of_thread * static_cast<rlim_t>(sysconf(_SC_NPROCESSORS_ONLN) - 1);
  // The group also counts the kernel's memory for the process and its file pages.
  const rlim_t kept_free = std::max<rlim_t>(12 << 20, *room / 32), most = stacks + *room;
  // Libraries crash if they get no memory at their start.
  if (most < kept_free + 2 * anonymous_bytes()) throw std::bad_alloc();
  data.rlim_cur = std::min({data.rlim_cur, data.rlim_max, most - kept_free});
  setrlimit(RLIMIT_DATA, &data);
}

/// Reported by the first process only; the others end after it.
void refuse_several() {
  if (launched_rank() > 0) {
    wait_for_rank_zero();
    throw CommandDone{1};
  }
  fail("one process runs this; start it without mpirun");
}

int run(std::vector<std::string> arguments) {
  spdlog::set_default_logger(spdlog::stderr_color_mt("focus"));           // stdout is for results
  spdlog::set_pattern(isatty(STDERR_FILENO) == 1 ? "\r\x1b[K%v" : "%v");  // in place of a bar
  const auto level = take_option(arguments, "--log-level");
  const auto threads = take_option(arguments, "--threads");
  if (arguments.size() > 1 && arguments[0] == "help") arguments = {arguments[1], "--help"};
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h" ||
      arguments[0] == "help") {
    fmt::print("{}", usage());
    return arguments.empty() ? 2 : 0;
  }
  if (arguments[0] == "--version") {
    fmt::print("focus " FOCUS_VERSION "\n");
    return 0;
  }
  const auto command = std::ranges::find(kCommands, std::string_view(arguments[0]), &Command::name);
  if (command == kCommands.end()) {
    std::vector<std::string> known;
    known.reserve(kCommands.size());
    for (const Command& one : kCommands) known.emplace_back(one.name);
    fmt::print(stderr, "focus: unknown command {}; {}\n", arguments[0],
               suggestion_for(arguments[0], known, "focus --help lists the commands"));
    return 2;
  }
  install_lost_file_signal();
  try {
    keep_to_control_groups();
    prepare_stores();
    if (const int wanted = omp_get_max_threads(); wanted > kMostThreads)
      fail("OMP_NUM_THREADS is {}: expected at most {}", wanted, kMostThreads);
    if (launched_processes() > 1 && !command->several) refuse_several();
    if (level) set_log_level(*level);
    if (threads) set_threads(read_threads(*threads));
    // Throws if FOCUS_SIMD names what this machine lacks.
    spdlog::debug("kernels: {}", simd::kernels().name);
    const int status = command->run(std::span(arguments).subspan(1));
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      fail_writing("write", "standard output", errno);
    return status;
  } catch (const CommandDone& done) {
    return done.status;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr,
               "focus {}: out of memory with {} MB in use; the machine, ulimit or a control group "
               "allows no more: a smaller data.batch or context needs less\n",
               command->name, anonymous_bytes() / 1'000'000);
  } catch (const std::filesystem::filesystem_error& error) {  // links in a circle, no permission
    fmt::print(stderr, "focus {}: {}: {}\n", command->name, error.path1().string(),
               error.code().message());
  } catch (const std::exception& error) {
    fmt::print(stderr, "focus {}: {}\n", command->name, error.what());
  }
  return 1;
}

}  // namespace
}  // namespace focus::app

int main(int argc, char** argv) {
  focus::app::shorten_openmp_spin(argv);
  return focus::app::run({argv + 1, argv + argc});
}
