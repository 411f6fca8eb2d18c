#include "autograd/machine.h"

#include <fmt/format.h>
#include <omp.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "autograd/base/memory.h"
#include "autograd/base/profile.h"
#include "autograd/simd/kernels.h"

namespace focus {

std::array<std::size_t, 3> cache_bytes() {
  // sysconf() knows them too, but of some processors the third as that of all cores together.
  const std::filesystem::path folder = "/sys/devices/system/cpu/cpu0/cache";
  const auto word = [&](int index, const char* name) {
    std::string found;
    std::ifstream(folder / fmt::format("index{}", index) / name) >> found;
    return found;
  };
  std::array<std::size_t, 3> bytes{};
  for (int index = 0; !word(index, "level").empty(); ++index) {
    const int level = word(index, "level")[0] - '1';
    if (level < 0 || level > 2 || word(index, "type") == "Instruction") continue;
    const std::string size = word(index, "size");  // "1024K"
    std::size_t& of_level = bytes[level];
    of_level = std::strtoull(size.c_str(), nullptr, 10);
    if (size.ends_with('K')) of_level <<= 10;
    if (size.ends_with('M')) of_level <<= 20;
  }
  return bytes;
}

double measured_clock_ghz() {
  constexpr int kRounds = 200'000, kChain = 8, kRuns = 20;
  double best = 0;
  std::uint64_t sum = 0, step = 3;
  const auto add = [&] {
    sum += step;
    asm volatile("" : "+r"(sum), "+r"(step));  // else they were one multiplication
  };
  for (int run = 0; run < kRuns; ++run) {
    const double start = now();
    for (int i = 0; i < kRounds; ++i) add(), add(), add(), add(), add(), add(), add(), add();
    best = std::max(best, kRounds * kChain / (now() - start));
  }
  return best / 1e9;
}

double measured_peak_gflops() {
  constexpr Index kRounds = 200'000;
  constexpr int kRuns = 60;
  const simd::Kernels& kernels = simd::kernels();
  const int threads = omp_get_max_threads();
  const double flops = 2.0 * static_cast<double>(kRounds * simd::kPeakChains * kernels.vector) *
                       static_cast<double>(threads);
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    const double start = now();
    Real sink = 0;
#pragma omp parallel for reduction(+ : sink) schedule(static, 1)
    for (int t = 0; t < threads; ++t) sink += kernels.multiply_add_peak(kRounds);
    const double seconds = now() - start;
    if (sink != 0) best = std::max(best, flops / seconds);
  }
  return best / 1e9;
}

Machine this_machine() {
  const std::string name = system_field("/proc/cpuinfo", "model name");
  return {.processor = name.empty() ? "unknown" : name,
          .threads = omp_get_max_threads(),
          .kernels = simd::kernels().name,
          .numbers = sizeof(Real) == 4 ? "float32" : "float64",
          .caches = cache_bytes(),
          .clock_ghz = measured_clock_ghz()};
}

std::string Machine::line() const {
  std::string line = fmt::format("{}, {} thread{}, {} kernels, {}", processor, threads,
                                 threads == 1 ? "" : "s", kernels, numbers);
  const char* separator = "; caches ";
  for (const std::size_t bytes : caches) {
    if (bytes == 0) continue;
    const bool large = bytes >= 1 << 20;
    line += fmt::format("{}{:g} {}", separator,
                        static_cast<double>(bytes) / (large ? 1 << 20 : 1 << 10),
                        large ? "MiB" : "KiB");
    separator = ", ";
  }
  return line + fmt::format("; {:.2f} GHz", clock_ghz);
}

}  // namespace focus
