#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/harness.h"

namespace {

namespace fs = std::filesystem;
using Bytes = std::string;

/// The input that is tried, for who ends by a signal.
const Bytes* tried = nullptr;

extern "C" void keep_input(int signal) {
  constexpr char kName[] = "broke-a-loader";
  const int file = open(kName, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file >= 0 && write(file, tried->data(), tried->size()) >= 0)
    static_cast<void>(!write(STDERR_FILENO, "the input is in ./broke-a-loader\n", 33));
  ::signal(signal, SIG_DFL);
  raise(signal);
}

std::size_t below(std::mt19937_64& rng, std::size_t n) { return n == 0 ? 0 : rng() % n; }

/// One of the seeds, changed in some places: bytes, and runs of bytes of its own or another's. It
/// is the smaller of two, since a large one takes the time of hundreds.
Bytes changed(const std::vector<Bytes>& seeds, std::mt19937_64& rng) {
  const Bytes& one = seeds[below(rng, seeds.size())];
  const Bytes& two = seeds[below(rng, seeds.size())];
  Bytes input = two.size() < one.size() ? two : one;
  for (std::size_t times = 1 + below(rng, 6); times > 0; --times) {
    const auto at = [&](const Bytes& of) {
      return static_cast<std::ptrdiff_t>(below(rng, of.size() + 1));
    };
    const std::ptrdiff_t place = at(input);
    const Bytes& other = below(rng, 2) == 0 ? input : seeds[below(rng, seeds.size())];
    const std::ptrdiff_t begin = at(other);
    const Bytes run(other.begin() + begin,
                    other.begin() + begin +
                        std::min<std::ptrdiff_t>(static_cast<std::ptrdiff_t>(below(rng, 24)),
                                                 std::ssize(other) - begin));
    const std::ptrdiff_t length = std::min(std::ssize(run), std::ssize(input) - place);
    switch (below(rng, 4)) {
      case 0:
        if (place < std::ssize(input)) input[place] = static_cast<char>(rng());
        break;
      case 1:
        input.erase(input.begin() + place, input.begin() + place + length);
        break;
      case 2:
        input.insert(input.begin() + place, run.begin(), run.end());
        break;
      default:
        std::copy_n(run.begin(), length, input.begin() + place);
    }
  }
  return input;
}

/// For who has no libFuzzer: as many inputs as FOCUS_FUZZ_RUNS says, the same ones every time, or
/// others with another FOCUS_FUZZ_SEED.
void try_changed(const std::vector<Bytes>& seeds) {
  const char* const runs = std::getenv("FOCUS_FUZZ_RUNS");
  const char* const seed = std::getenv("FOCUS_FUZZ_SEED");
  if (runs == nullptr) return;
  std::mt19937_64 rng(seed == nullptr ? 1 : std::strtoull(seed, nullptr, 10));
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE}) ::signal(signal, keep_input);
  const long count = std::atol(runs);
  for (long i = 0; i < count; ++i) {
    const Bytes input = changed(seeds, rng);
    tried = &input;
    focus::fuzz::try_input(input);
  }
  std::printf("%ld changed ones\n", count);
}

}  // namespace

/// Runs a target over every file of the folders given: the seeds, among them whatever once broke a
/// loader. What is wrong ends the program, after the line that names the file.
int main(int argc, char** argv) {
  std::vector<fs::path> files;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : fs::recursive_directory_iterator(argv[i])) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  std::vector<Bytes> seeds;
  for (const fs::path& path : files) {
    std::printf("%s\n", path.c_str());
    std::fflush(stdout);
    std::ifstream file(path, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    focus::fuzz::try_input(seeds.back());
  }
  std::printf("%zu files\n", files.size());
  if (!seeds.empty()) try_changed(seeds);
  return files.empty() ? 1 : 0;
}
