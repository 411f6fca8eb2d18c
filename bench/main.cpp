#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <omp.h>

#include <exception>

#include "autograd/simd/kernels.h"
#include "bench/cases.h"
#include "focus/version.h"

/// Google Benchmark's options (--benchmark_filter=REGEX, --benchmark_list_tests,
/// --benchmark_format=json, ...); OMP_NUM_THREADS says how many threads. GOMP_SPINCOUNT=10000 makes
/// it wait for its threads as the program does.
int main(int argc, char** argv) {
  benchmark::AddCustomContext("isa", focus::simd::kernels().name);
  benchmark::AddCustomContext("threads", std::to_string(omp_get_max_threads()));
  benchmark::AddCustomContext("compiler", FOCUS_COMPILER);
  benchmark::AddCustomContext("version", FOCUS_VERSION);
  focus::bench::add_gemm_cases();
  focus::bench::add_op_cases();
  focus::bench::add_attention_cases();
  focus::bench::add_routing_cases();
  focus::bench::add_other_cases();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  try {
    benchmark::RunSpecifiedBenchmarks();
  } catch (const std::exception& error) {
    fmt::print(stderr, "focus_bench: {}\n", error.what());
    return 1;
  }
  benchmark::Shutdown();
}
