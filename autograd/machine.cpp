#include "autograd/machine.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <fstream>

#include "autograd/clock.h"
#include "autograd/simd/kernels.h"

namespace focus {
namespace {

/// What follows "key" and a colon in one of the kernel's files; empty where there is none.
std::string system_field(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string::npos) continue;
    const std::size_t start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "";
}

std::size_t status_bytes(const std::string& field) {
  const std::string kib = system_field("/proc/self/status", field);  // "123456 kB"
  return kib.empty() ? 0 : std::stoull(kib) * 1024;
}

}  // namespace

std::string processor_name() {
  const std::string name = system_field("/proc/cpuinfo", "model name");
  return name.empty() ? "unknown" : name;
}

std::size_t peak_resident_bytes() { return status_bytes("VmHWM"); }
std::size_t anonymous_bytes() { return status_bytes("RssAnon"); }

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
  return {.processor = processor_name(),
          .threads = omp_get_max_threads(),
          .kernels = simd::kernels().name,
          .numbers = sizeof(Real) == 4 ? "float32" : "float64"};
}

std::string Machine::line() const {
  return fmt::format("{}, {} thread{}, {} kernels, {}", processor, threads, threads == 1 ? "" : "s",
                     kernels, numbers);
}

}  // namespace focus
