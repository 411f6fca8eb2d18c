// Every op gives the same bits for any number of threads and wherever its scratch memory lies.
#include <omp.h>

#include <array>
#include <atomic>
#include <memory>
#include <new>
#include <thread>

#include "autograd/base/parallel.h"
#include "autograd/gemm/q8.h"
#include "autograd/simd/bf16_kernels.h"
#include "tests/support/stored_blocks.h"

namespace focus {
namespace {

struct ThreadsCase {
  const char* name;
  std::vector<Tensor> inputs;
  std::function<Variable(const Variables&)> op;
};

std::vector<ThreadsCase> cases() {
  const std::vector<std::int32_t> ids = random_ids(300, 50, 7);
  const Tensor big = randn({3, 16400}, 1), other = randn({3, 16400}, 2);
  const Tensor rows = randn({300, 67}, 3);
  const RotaryTable table{uniform({65, 3}, 4, -1, 1), uniform({65, 3}, 5, -1, 1)};
  const auto attention_inputs = [](Index seq_len, Index head_dim) {
    return std::vector<Tensor>{randn({2, seq_len, 4, head_dim}, 1),
                               randn({2, seq_len, 2, head_dim}, 2),
                               randn({2, seq_len, 2, head_dim}, 3)};
  };
  const auto attend = [](const Variables& v) {
    return attention(v[0], v[1], v[2], {.scale = Real(0.3), .softcap = 2, .sliding_window = 90});
  };
  std::vector<ThreadsCase> all = {
      {"add", {big, other}, [](const Variables& v) { return add(v[0], v[1]); }},
      {"multiply", {big, other}, [](const Variables& v) { return multiply(v[0], v[1]); }},
      {"swiglu", {big, other}, [](const Variables& v) { return swiglu(v[0], v[1]); }},
      {"unary",
       {big},
       [](const Variables& v) {
         return log(shift(sigmoid(tanh(gelu(gelu_tanh(silu(scale(v[0], 2)))))), 1));
       }},
      {"linear",
       {rows, randn({131, 67}, 4), randn({131}, 5)},
       [](const Variables& v) { return linear(v[0], v[1], v[2]); }},
      {"matmul",
       {randn({3, 70, 67}, 1), randn({3, 67, 71}, 2)},
       [](const Variables& v) { return matmul(v[0], v[1]); }},
      {"transpose", {big}, [](const Variables& v) { return transpose(v[0], 0, 1); }},
      {"embedding",
       {randn({50, 67}, 4)},
       [ids](const Variables& v) { return embedding(v[0], ids, {300}); }},
      {"layer_norm",
       {rows, randn({67}, 4), randn({67}, 5)},
       [](const Variables& v) { return layer_norm(v[0], v[1], v[2], Real(1e-5)); }},
      {"rms_norm",
       {rows, randn({67}, 4)},
       [](const Variables& v) { return rms_norm(v[0], v[1], Real(1e-5)); }},
      {"softmax", {randn({700, 67}, 3)}, [](const Variables& v) { return softmax(v[0]); }},
      {"log_sum_exp", {randn({700, 67}, 3)}, [](const Variables& v) { return log_sum_exp(v[0]); }},
      {"rope",
       {randn({9, 65, 8, 7}, 3)},
       [table](const Variables& v) { return rope(v[0], table); }},
      {"cross entropy",
       {rows, randn({50, 67}, 4)},
       [ids](const Variables& v) { return linear_cross_entropy(v[0], v[1], ids); }},
      {"attention 5", attention_inputs(5, 3), attend},
      {"attention 65", attention_inputs(65, 5), attend},
      {"attention 200", attention_inputs(200, 8), attend},
      {"attention 900", attention_inputs(900, 16), attend},
      {"attention of documents",
       {randn({1, 290, 4, 6}, 1), randn({1, 290, 2, 6}, 2), randn({1, 290, 2, 6}, 3)},
       [](const Variables& v) {
         return attention(v[0], v[1], v[2],
                          {.scale = Real(0.4),
                           .documents = std::make_shared<const std::vector<Index>>(
                               std::vector<Index>{0, 70, 75, 290})});
       }},
  };
  for (const simd::Bf16Kernels* kernels : simd::usable_bf16_kernels())
    all.push_back({kernels->name, attention_inputs(300, 24), [=](const Variables& v) {
                     return attention(v[0], v[1], v[2], {.scale = Real(0.4), .bf16 = kernels});
                   }});
  return all;
}

TEST(Threads, EveryOpGivesTheSameBits) {
  for (const ThreadsCase& c : cases())
    expect_same_bits_for_any_threads(c.name, [&] { return value_and_gradients(c.inputs, c.op); });
}

/// Products of m rows and, where they are made otherwise, of one.
TEST(Threads, EveryProductGivesTheSameBits) {
  for (const auto& [m, n, k] : std::vector<std::array<Index, 3>>{{1, 5, 3},
                                                                 {257, 31, 8},
                                                                 {300, 40, 50},
                                                                 {1030, 17, 13},
                                                                 {2048, 9, 64},
                                                                 {11, 259, 1541}}) {
    const Tensor a = randn({m, k}, 1), b = randn({k, n}, 2), w = randn({n, k}, 3);
    const Tensor columns = randn({k, m}, 4), bias = randn({n}, 5);
    const std::string what = fmt::format("{}x{}x{}", m, n, k);
    const auto into = [&, m = m, n = n](const auto& product) {
      Tensor c = randn({m, n}, 6);
      product(c.data());
      return c;
    };
    expect_same_bits_for_any_threads(what, [&, m = m, n = n, k = k] {
      return std::vector<Tensor>{
          into([&](Real* c) { gemm(m, n, k, a.data(), k, b.data(), n, c, n, Into::add); }),
          into([&](Real* c) {
            gemm_nt(m, n, k, a.data(), k, w.data(), k, c, n, Start(bias.data()));
          }),
          into([&](Real* c) { gemm_tn(m, n, k, columns.data(), m, b.data(), n, c, n); })};
    });
    for (const simd::Bf16Kernels* kernels : simd::usable_bf16_kernels()) {
      const Bf16Matrix rows(n, k, w.data(), k), right(k, n, b.data(), n);
      expect_same_bits_for_any_threads(kernels->name + what, [&, m = m, n = n, k = k] {
        return std::vector<Tensor>{
            into([&](Real* c) { gemm_nt(m, a.data(), k, rows, c, n, {}, *kernels); }),
            into([&](Real* c) { gemm(m, a.data(), k, right, c, n, {}, *kernels); })};
      });
    }
  }
  const Tensor x = randn({300, 512}, 1), one = randn({1, 512}, 2), dy = randn({300, 700}, 3);
  const Stored blocks = stored_blocks(700, 512, NumberFormat::q4_k, {}, 1),
               transposed = stored(700, 512, NumberFormat::bf16, {.transposed = true}, 1);
  for (const Stored* w : {&blocks, &transposed})
    expect_same_bits_for_any_threads(name_of(w->view.format), [&] {
      Tensor y({300, 700}), row({1, 700}), dx({300, 512});
      gemm_nt(300, x.data(), 512, w->view, y.data(), 700);
      gemm_nt(1, one.data(), 512, w->view, row.data(), 700);
      gemm(300, dy.data(), 700, w->view, dx.data(), 512);
      return std::vector<Tensor>{y, row, dx};
    });
  expect_same_bits_for_any_threads("q8", [&] {
    Tensor y({90, 700}), row({1, 700});
    gemm_nt_q8(90, x.data(), 512, blocks.view, y.data(), 700);
    gemm_nt_q8(1, one.data(), 512, blocks.view, row.data(), 700);
    return std::vector<Tensor>{y, row};
  });
}

TEST(MultiplyAdds, AreCounted) {
  const Tensor x = randn({300, 20}, 1), w = randn({30, 20}, 2), b = randn({20, 30}, 3);
  const Stored view = stored(30, 20, NumberFormat::bf16, {}, 1);
  Tensor y({300, 30});
  const auto counted = [](const auto& product) {
    const std::uint64_t before = multiply_adds();
    product();
    return multiply_adds() - before;
  };
  const Bf16Matrix rounded(30, 20, w.data(), 20);
  const std::uint64_t wanted = 300u * 30 * 20;
  EXPECT_EQ(counted([&] { gemm(300, 30, 20, x.data(), 20, b.data(), 30, y.data(), 30); }), wanted);
  EXPECT_EQ(counted([&] { gemm_nt(300, x.data(), 20, view.view, y.data(), 30); }), wanted);
  EXPECT_EQ(counted([&] { gemm_nt(300, x.data(), 20, rounded, y.data(), 30); }), wanted);
}

TEST(Threads, BitsDoNotDependOnTheHeap) {
  // Small blocks that stay allocated shift where the next scratch buffer comes to lie.
  std::vector<std::unique_ptr<char[]>> blocks;
  for (const ThreadsCase& c : cases()) {
    if (!std::string(c.name).starts_with("attention")) continue;  // the op that has scratch buffers
    const std::vector<Tensor> first = value_and_gradients(c.inputs, c.op);
    for (int i = 0; i < 8; ++i) {
      for (const std::size_t size : {16 + 16 * (i % 5), 1000 + 48 * i, 30000 + 16 * i})
        blocks.push_back(std::make_unique<char[]>(static_cast<std::size_t>(size)));
      expect_same_bits(value_and_gradients(c.inputs, c.op), first, c.name);
    }
  }
}

TEST(Threads, RunsDoEachItemOnceThoughAThreadIsLate) {
  for (const int threads : {1, 2, 3, 5})
    for (const Index n : {1, 7, 64, 1000, 1003}) {
      std::vector<std::atomic<int>> done(n);
      std::atomic<Index> all_done = 0;
      with_threads(threads, [&] {
        parallel_runs(n, 8, [&](Index begin, Index end) {
          // The first chunk waits for all others: its thread's are done by the others.
          if (begin == 0 && omp_get_num_threads() > 1)
            while (all_done < n - 8) std::this_thread::yield();
          for (Index i = begin; i < end; ++i) ++done[i], ++all_done;
        });
        return std::vector<Tensor>{};
      });
      for (const std::atomic<int>& times : done) ASSERT_EQ(times, 1) << threads << " threads";
    }
}

TEST(Threads, WhatABodyThrowsIsThrownOnceAfterAllHaveEnded) {
  const auto throws = [](const auto& run) {
    std::atomic<int> begun = 0, running = 0, after = 0;
    EXPECT_THROW(run(1000,
                     [&](Index begin, Index) {
                       ++begun;
                       ++running;
                       const bool broken = begin >= 500;
                       --running;
                       if (broken) throw std::bad_alloc();
                     }),
                 std::bad_alloc);
    EXPECT_EQ(running, 0);
    EXPECT_LT(begun, 1000);
    run(10, [&](Index, Index) { ++after; });
    EXPECT_EQ(after, 10);
  };
  for (const int threads : {1, 3})
    with_threads(threads, [&] {
      throws([](Index n, const auto& body) { parallel_chunks(n, 1, body); });
      throws([](Index n, const auto& body) { parallel_runs(n, 1, body); });
      return std::vector<Tensor>{};
    });
}

}  // namespace
}  // namespace focus
