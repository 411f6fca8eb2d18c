#include "bench/gemm_peers.h"

#include <fmt/format.h>
#include <omp.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "autograd/base/check.h"
#include "autograd/gemm/gemm.h"
#include "autograd/simd/kernels.h"
#include "bench/cases.h"

namespace focus::bench {
namespace {

struct Options {
  int repeats = 9;
  double seconds = 0.05;  // of one repeat
  bool small_only = false;
  std::string json;
};

GemmPeer ours() {
  return {"focus", [](const GemmProblem& problem) {
            return [=] {
              const auto [m, k, n] = problem.shape;
              if (problem.transposed)
                gemm_nt(m, n, k, problem.a, k, problem.b, k, problem.c, n);
              else
                gemm(m, n, k, problem.a, k, problem.b, n, problem.c, n);
            };
          }};
}

GemmPeer eigen(std::string name, decltype(&focus_eigen_plain) multiply, int threads,
               bool row_chunks) {
  return {std::move(name), [=](const GemmProblem& problem) {
            return [=] {
              multiply(problem.shape.m, problem.shape.k, problem.shape.n, problem.transposed,
                       problem.a, problem.b, problem.c, threads, row_chunks);
            };
          }};
}

std::vector<GemmPeer> all_peers(int threads) {
  std::vector<GemmPeer> peers = {
      ours(),
      eigen("Eigen plain, row chunks", &focus_eigen_plain, threads, true),
      eigen("Eigen plain, own threads", &focus_eigen_plain, threads, false),
      eigen("Eigen tuned, row chunks", &focus_eigen_tuned, threads, true),
      eigen("Eigen tuned, own threads", &focus_eigen_tuned, threads, false),
  };
#ifdef FOCUS_HAS_OPENBLAS
  std::ranges::move(openblas_peers(threads), std::back_inserter(peers));
#endif
#ifdef FOCUS_HAS_ONEDNN
  std::ranges::move(onednn_peers(threads), std::back_inserter(peers));
#endif
  return peers;
}

double seconds_of(const std::function<void()>& run, int calls) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Throws where a peer does not compute the product that ours does: its time would mean nothing.
void compare(const Tensor& expected, const Tensor& actual, const std::string& name) {
  for (Index i = 0; i < expected.size(); ++i)
    if (!(std::abs(expected[i] - actual[i]) <= 1e-3 + 1e-3 * std::abs(expected[i])))
      fail("gemm_peers: {} has {} at element {} where ours has {}", name, actual[i], i,
           expected[i]);
}

/// One line of the table: all peers on one product, repeats in turn, so that a slow moment of the
/// machine does not fall on one of them alone.
nlohmann::json measure(const GemmShape& shape, bool transposed, const std::vector<GemmPeer>& peers,
                       const Options& options) {
  const Tensor a = random_tensor({shape.m, shape.k}, 1);
  const Tensor b = random_tensor({shape.k, shape.n}, 2);
  Tensor expected({shape.m, shape.n}), c({shape.m, shape.n});
  struct Contestant {
    const GemmPeer* peer;
    std::function<void()> run;
    int calls;
    std::vector<double> seconds;
  };
  std::vector<Contestant> contestants;
  for (const GemmPeer& peer : peers) {
    Tensor& out = contestants.empty() ? expected : c;
    const auto run = peer.prepare({shape, transposed, a.data(), b.data(), out.data()});
    run();
    if (!contestants.empty()) compare(expected, c, peer.name);
    const double once = seconds_of(run, 1);
    contestants.push_back({&peer, run, std::max(1, static_cast<int>(options.seconds / once)), {}});
  }
  for (int repeat = 0; repeat < options.repeats; ++repeat)
    for (Contestant& contestant : contestants)
      contestant.seconds.push_back(seconds_of(contestant.run, contestant.calls) / contestant.calls);

  nlohmann::json line = {{"product", transposed ? "A Bᵀ" : "A B"},
                         {"shape", shape.name()},
                         {"peers", nlohmann::json::array()}};
  fmt::print("{} {}\n", transposed ? "A Bᵀ" : "A B ", shape.name());
  for (Contestant& contestant : contestants) {
    std::ranges::sort(contestant.seconds);
    const double least = contestant.seconds.front();
    const double median = contestant.seconds[contestant.seconds.size() / 2];
    fmt::print("  {:<40} {:9.3f} {:9.3f} ms  {:7.1f} {:7.1f} GFLOP/s\n", contestant.peer->name,
               least * 1e3, median * 1e3, shape.flops() / least / 1e9,
               shape.flops() / median / 1e9);
    line["peers"].push_back({{"name", contestant.peer->name},
                             {"ms_min", least * 1e3},
                             {"ms_median", median * 1e3},
                             {"gflops", shape.flops() / least / 1e9}});
  }
  std::fflush(stdout);
  return line;
}

void run(const Options& options) {
  const int threads = omp_get_max_threads();
  const std::vector<GemmPeer> peers = all_peers(threads);
  fmt::print("{} threads, {} kernels; time and speed: best and median of {}\n", threads,
             simd::kernels().name, options.repeats);
  nlohmann::json lines = nlohmann::json::array();
  for (const bool transposed : {false, true})
    for (const GemmShape& shape : kGemmShapes)
      if (!options.small_only || shape.flops() < 1e9)
        lines.push_back(measure(shape, transposed, peers, options));
  if (options.json.empty()) return;
  std::ofstream file(options.json);
  file << nlohmann::json{{"threads", threads},
                         {"isa", simd::kernels().name},
                         {"compiler", FOCUS_COMPILER},
                         {"products", lines}}
              .dump(1)
       << '\n';
  if (!file.flush())
    fail("gemm_peers: cannot write {}; is there room, and a folder?", options.json);
}

}  // namespace
}  // namespace focus::bench

int main(int argc, char** argv) {
  focus::bench::Options options;
  CLI::App app("gemm of autograd/gemm.h beside other libraries' on the shapes that a model has");
  app.add_option("--repeats", options.repeats, "of each, in turn")->check(CLI::PositiveNumber);
  app.add_option("--seconds", options.seconds, "of one repeat")->check(CLI::PositiveNumber);
  app.add_flag("--small-only", options.small_only, "the shapes of one attention head alone");
  app.add_option("--json", options.json, "also write the figures to this file");
  CLI11_PARSE(app, argc, argv);
  try {
    focus::bench::run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
