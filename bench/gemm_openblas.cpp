#include <algorithm>
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

void multiply(const GemmProblem& problem, Index begin, Index rows) {
  const auto k = static_cast<int>(problem.shape.k), n = static_cast<int>(problem.shape.n);
  cblas_sgemm(kRowMajor, kNoTrans, problem.transposed ? kTrans : kNoTrans, static_cast<int>(rows),
              n, k, 1, problem.a + begin * k, k, problem.b, problem.transposed ? k : n, 0,
              problem.c + begin * n, n);
}

}  // namespace

std::vector<GemmPeer> openblas_peers(int threads) {
  const std::string name = std::string("OpenBLAS ") + openblas_get_corename();
  openblas_set_num_threads(threads);
  if (openblas_get_parallel() != 0)
    return {{name + ", own threads", [](const GemmProblem& problem) {
               return [=] { multiply(problem, 0, problem.shape.m); };
             }}};
  return {{name + ", row chunks", [threads](const GemmProblem& problem) {
             return [=] {
               const Index m = problem.shape.m, rows = (m + threads - 1) / threads;
#pragma omp parallel for num_threads(threads)
               for (Index begin = 0; begin < m; begin += rows)
                 multiply(problem, begin, std::min(rows, m - begin));
             };
           }}};
}

}  // namespace focus::bench
