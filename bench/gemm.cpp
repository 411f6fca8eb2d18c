#include "autograd/gemm/gemm.h"

#include <memory>
#include <vector>

#include "autograd/gemm/block_formats.h"
#include "autograd/gemm/frozen_matrix.h"
#include "bench/cases.h"
#include "bench/gemm_shapes.h"

namespace focus::bench {
namespace {

using Gemm = void (*)(Index, Index, Index, const Real*, Index, const Real*, Index, Real*, Index,
                      Start);

/// a and b as the product stores them, with rows of `lda` and `ldb` numbers.
void add_product(const std::string& name, Gemm product, const GemmShape& shape, Index lda,
                 Index ldb) {
  add_case("gemm/" + name + "/" + shape.name(), [=] {
    const auto [m, k, n] = shape;
    const Tensor a = random_tensor({m * k}, 1), b = random_tensor({k * n}, 2);
    Tensor c({m, n});
    return Case{
        .run = [=]() mutable { product(m, n, k, a.data(), lda, b.data(), ldb, c.data(), n, {}); },
        .flops = shape.flops()};
  });
}

/// As a linear multiplies with a frozen weight [n, k], in each precision.
void add_frozen_product(Precision precision, const GemmShape& shape) {
  add_case(fmt::format("gemm/frozen_{}/{}", name_of(precision), shape.name()), [=] {
    const auto [m, k, n] = shape;
    const Tensor a = random_tensor({m * k}, 1);
    const FrozenMatrix w(random_tensor({n, k}, 2), precision);
    Tensor c({m, n});
    return Case{.run = [=, m = m]() mutable { w->gemm_nt(m, a.data(), c.data(), {}); },
                .flops = shape.flops()};
  });
}

/// The same with a weight in blocks.
void add_packed_product(NumberFormat format, Precision precision, const GemmShape& shape) {
  if (shape.k % block_numbers(format) != 0) return;
  add_case(fmt::format("gemm/frozen_{}_{}/{}", name_of(format), name_of(precision), shape.name()),
           [=] {
             const auto [m, k, n] = shape;
             const Tensor a = random_tensor({m * k}, 1), numbers = random_tensor({n, k}, 2);
             const auto blocks = std::make_shared<std::vector<std::byte>>(bytes_of(format, n * k));
             round_to_blocks(format, numbers.data(), n * k, blocks->data());
             const FrozenMatrix w(
                 {.data = blocks->data(), .format = format, .rows = n, .cols = k, .pitch = k},
                 blocks, precision);
             Tensor c({m, n});
             return Case{.run = [=, m = m]() mutable { w->gemm_nt(m, a.data(), c.data(), {}); },
                         .flops = shape.flops()};
           });
}

}  // namespace

void add_gemm_cases() {
  for (const GemmShape& shape : kGemmShapes) {
    add_product("nn", &gemm, shape, shape.k, shape.n);
    add_product("nt", &gemm_nt, shape, shape.k, shape.k);
    add_product("tn", &gemm_tn, shape, shape.m, shape.n);
    for (const Precision precision : {Precision::float32, Precision::bf16, Precision::q8})
      add_frozen_product(precision, shape);
    for (const NumberFormat format : {NumberFormat::q8_0, NumberFormat::q4_0})
      for (const Precision precision : {Precision::float32, Precision::q8})
        add_packed_product(format, precision, shape);
  }
}

}  // namespace focus::bench
