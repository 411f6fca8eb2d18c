#include <string>

#include "bench/gemm_peers.h"

// Declared here: the header of a libopenblas variant lies in a folder of its own.
extern "C" {
void cblas_sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                 const float* a, int lda, const float* b, int ldb, float beta, float* c, int ldc);
int openblas_get_parallel();  // 0: one thread only, 1: threads of its own, 2: OpenMP
char* openblas_get_corename();
void openblas_set_num_threads(int threads);
}

namespace focus::bench {
namespace {

constexpr int kRowMajor = 101, kNoTrans = 111, kTrans = 112;

void multiply(const GemmProblem& problem) {
  const auto m = static_cast<int>(problem.shape.m), k = static_cast<int>(problem.shape.k);
  const auto n = static_cast<int>(problem.shape.n);
  cblas_sgemm(kRowMajor, kNoTrans, problem.transposed ? kTrans : kNoTrans, m, n, k, 1, problem.a, k,
              problem.b, problem.transposed ? k : n, 0, problem.c, n);
}

}  // namespace

std::vector<GemmPeer> openblas_peers(int threads) {
  // The build without threads is no peer: called from several at once it gives wrong results.
  if (openblas_get_parallel() == 0) return {};
  openblas_set_num_threads(threads);
  return {{std::string("OpenBLAS ") + openblas_get_corename() + ", own threads",
           [](const GemmProblem& problem) { return [=] { multiply(problem); }; }}};
}

}  // namespace focus::bench
