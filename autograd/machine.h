#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

// The machine that a speed was measured on.
namespace focus {

/// Bytes of a core's caches: first level (data), second, and the third, which cores share; 0 where
/// the system does not say.
std::array<std::size_t, 3> cache_bytes();
/// Cycles of a core in a second / 1e9, as additions that wait for one another tell them (one each),
/// the best of several short runs.
double measured_clock_ghz();
/// GFLOP/s of multiply-adds (two operations each) that stay in registers, on as many threads as
/// there are, the best of several short runs: what no product can exceed.
double measured_peak_gflops();

/// The middle of the values, or the mean of the two in the middle. Not for none.
inline double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// Printed with every speed.
struct Machine {
  std::string processor;  // its own name; "unknown" where the system does not say
  int threads = 1;
  std::string kernels;  // of the instruction set
  std::string numbers;  // "float32"
  std::array<std::size_t, 3> caches = {};
  double clock_ghz = 0;

  /// "AMD EPYC, 2 threads, avx512 kernels, float32; caches 32 KiB, 1 MiB, 32 MiB; 3.70 GHz"
  std::string line() const;
};
Machine this_machine();

}  // namespace focus
