#include "bench/cases.h"

#include <benchmark/benchmark.h>

namespace focus::bench {

void add_case(const std::string& name, std::function<Case()> setup) {
  const auto body = [setup = std::move(setup)](benchmark::State& state) {
    const Case prepared = setup();
    for ([[maybe_unused]] auto _ : state) prepared.run();
    const auto rate = [&](const char* unit, double amount) {
      if (amount > 0)
        state.counters[unit] = {amount, benchmark::Counter::kIsIterationInvariantRate};
    };
    rate("GFLOP/s", prepared.flops / 1e9);
    rate("GB/s", prepared.bytes / 1e9);
    rate("tokens/s", prepared.tokens);
    if (prepared.pairs > 0) state.counters["pairs"] = prepared.pairs;
  };
  // OpenMP's threads do not show on the main thread's CPU clock: the time is the wall's.
  benchmark::RegisterBenchmark(name.c_str(), body)->UseRealTime()->Unit(benchmark::kMillisecond);
}

}  // namespace focus::bench
