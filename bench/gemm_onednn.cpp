#include <omp.h>

#include <dnnl.hpp>

#include "bench/gemm_peers.h"

namespace focus::bench {

std::vector<GemmPeer> onednn_peers(int threads) {
  const dnnl_version_t* version = dnnl_version();
  const std::string name = "oneDNN " + std::to_string(version->major) + "." +
                           std::to_string(version->minor) + "." + std::to_string(version->patch) +
                           " matmul, own threads";
  return {{name, [threads](const GemmProblem& problem) -> std::function<void()> {
             using Tag = dnnl::memory::format_tag;
             using dnnl::memory;
             omp_set_num_threads(threads);  // what a primitive is made for
             const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
             const auto [m, k, n] = problem.shape;
             const auto f32 = memory::data_type::f32;
             const memory::desc a({m, k}, f32, Tag::ab);
             const memory::desc b({k, n}, f32, problem.transposed ? Tag::ba : Tag::ab);
             const memory::desc c({m, n}, f32, Tag::ab);
             const dnnl::matmul product(
                 dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), engine));
             dnnl::stream stream(engine);
             const std::unordered_map<int, memory> operands = {
                 {DNNL_ARG_SRC, memory(a, engine, const_cast<float*>(problem.a))},
                 {DNNL_ARG_WEIGHTS, memory(b, engine, const_cast<float*>(problem.b))},
                 {DNNL_ARG_DST, memory(c, engine, problem.c)}};
             return [=]() mutable {
               product.execute(stream, operands);
               stream.wait();
             };
           }}};
}

}  // namespace focus::bench
