#include <cmath>
#include <limits>

#include "autograd/check.h"
#include "autograd/eigen.h"
#include "autograd/gemm.h"
#include "autograd/parallel.h"
#include "autograd/tiled_attention.h"

namespace focus {
namespace {

constexpr Index kTileRows = 64;
/// Backward deals the query tiles to at most this many tasks, each with key and value gradients of
/// its own, summed in a fixed order: a constant, so that bits do not depend on the thread count.
constexpr Index kBackwardTasks = 8;
constexpr Real kMasked = -std::numeric_limits<Real>::infinity();

/// Aligned: Eigen handles what lies before the first aligned number one by one, and its last bits
/// would change with the place where the heap puts the buffer.
using Scratch = std::vector<Real, Eigen::aligned_allocator<Real>>;

AttentionTile tile_at(const AttentionInputs& in, Index index) {
  const Index seq_len = in.q.dim(1), tiles = (seq_len + kTileRows - 1) / kTileRows;
  AttentionTile tile;
  tile.batch = index / tiles;
  tile.begin = index % tiles * kTileRows;
  tile.end = std::min(seq_len, tile.begin + kTileRows);
  if (in.options.sliding_window > 0)
    tile.first_key = std::max<Index>(0, tile.begin - in.options.sliding_window + 1);
  return tile;
}

Index tile_count(const AttentionInputs& in) {
  return in.q.dim(0) * ((in.q.dim(1) + kTileRows - 1) / kTileRows);
}

/// Where one head's rows of a [batch, seq_len, heads, head_dim] tensor start, and their distance.
struct HeadRows {
  Index offset, stride;
};
HeadRows head_rows(const Tensor& x, Index batch, Index row, Index head) {
  const Index stride = x.dim(2) * x.dim(3);
  return {(batch * x.dim(1) + row) * stride + head * x.dim(3), stride};
}

/// The finished scores of one head: scale q·k, then the soft-cap.
void raw_scores(const AttentionInputs& in, const AttentionTile& tile, Index head, Real* scores) {
  const Index kv_head = head / (in.q.dim(2) / in.k.dim(2));
  const HeadRows q = head_rows(in.q, tile.batch, tile.begin, head);
  const HeadRows k = head_rows(in.k, tile.batch, tile.first_key, kv_head);
  serial::gemm_nt(tile.rows(), tile.cols(), in.q.dim(3), in.q.data() + q.offset, q.stride,
                  in.k.data() + k.offset, k.stride, scores, tile.cols());
  auto s = array(scores, tile.rows() * tile.cols());
  s *= in.options.scale;
  if (in.options.softcap > 0) s = in.options.softcap * (s / in.options.softcap).tanh();
}

/// -inf where a key is after the query or outside the layer's sliding window.
void mask(const AttentionInputs& in, const AttentionTile& tile, Real* scores) {
  const Index window = in.options.sliding_window, cols = tile.cols();
  for (Index r = 0; r < tile.rows(); ++r) {
    Real* row = scores + r * cols;
    const Index query = tile.begin + r;
    std::fill(row + (query - tile.first_key) + 1, row + cols, kMasked);
    if (window > 0)
      std::fill(row, row + std::max<Index>(0, query - window + 1 - tile.first_key), kMasked);
  }
}

}  // namespace

void check_attention_inputs(const AttentionInputs& in) {
  check(
      in.q.rank() == 4 && in.k.rank() == 4 && in.k.shape() == in.v.shape() &&
          in.q.dim(0) == in.k.dim(0) && in.q.dim(1) == in.k.dim(1) && in.q.dim(3) == in.k.dim(3) &&
          in.k.dim(2) > 0 && in.q.dim(2) % in.k.dim(2) == 0,
      "attention: q {}, k {}, v {} do not fit ([batch, seq_len, heads, head_dim], heads a multiple "
      "of the key heads)",
      in.q.shape(), in.k.shape(), in.v.shape());
}

AttentionResult tiled_attention(const AttentionInputs& in, const ScoreRule* rule) {
  const Index seq_len = in.q.dim(1), heads = in.q.dim(2), head_dim = in.q.dim(3);
  AttentionResult result{Tensor(in.q.shape()), Tensor({in.q.dim(0), heads, seq_len})};
  Real* out = result.out.data();
  Real* lse = result.lse.data();
  parallel_chunks(tile_count(in), 1, [&, out, lse](Index index, Index) {
    // Heavy tiles (the last queries) first, so that no thread ends with one alone.
    const AttentionTile tile = tile_at(in, tile_count(in) - 1 - index);
    const auto rule_tile = rule ? rule->tile(tile) : nullptr;
    Scratch scores(static_cast<std::size_t>(tile.rows() * tile.cols()));
    for (Index head = 0; head < heads; ++head) {
      raw_scores(in, tile, head, scores.data());
      if (rule_tile) rule_tile->apply(scores.data());
      mask(in, tile, scores.data());
      Eigen::Array<Real, kTileRows, 1> inverse_sum;
      for (Index r = 0; r < tile.rows(); ++r) {
        auto row = array(scores.data() + r * tile.cols(), tile.cols());
        const Real max = row.maxCoeff();
        row = (row - max).exp();
        const Real sum = row.sum();
        inverse_sum[r] = 1 / sum;
        lse[(tile.batch * heads + head) * seq_len + tile.begin + r] = max + std::log(sum);
      }
      const HeadRows v = head_rows(in.v, tile.batch, tile.first_key, head / (heads / in.k.dim(2)));
      const HeadRows o = head_rows(in.q, tile.batch, tile.begin, head);
      serial::gemm(tile.rows(), head_dim, tile.cols(), scores.data(), tile.cols(),
                   in.v.data() + v.offset, v.stride, out + o.offset, o.stride);
      for (Index r = 0; r < tile.rows(); ++r)
        array(out + o.offset + r * o.stride, head_dim) *= inverse_sum[r];
    }
  });
  return result;
}

AttentionGradients tiled_attention_backward(const AttentionInputs& in,
                                            const AttentionResult& result, const Tensor& d_out,
                                            const ScoreRule* rule, WantedGradients wanted) {
  const Index seq_len = in.q.dim(1), heads = in.q.dim(2), head_dim = in.q.dim(3);
  const Index tiles = tile_count(in), tasks = std::min(tiles, kBackwardTasks);
  const Index rule_size = rule ? rule->grad_size() : 0;
  AttentionGradients grads;
  if (wanted.q) grads.q = Tensor(in.q.shape());
  const auto sum_buffers = [&](bool needed, Index size) {
    return needed && size > 0 ? Tensor::zeros({tasks, size}) : Tensor();
  };
  Tensor dk = sum_buffers(wanted.k, in.k.size()), dv = sum_buffers(wanted.v, in.v.size());
  Tensor d_rule = sum_buffers(rule_size > 0, rule_size);

  parallel_chunks(tasks, 1, [&](Index task, Index) {
    Scratch before, scores, d_scores;
    // Boustrophedon: a task takes a light tile after a heavy one.
    for (Index round = 0; round * tasks < tiles; ++round) {
      const Index index = round * tasks + (round % 2 == 0 ? task : tasks - 1 - task);
      if (index >= tiles) continue;
      const AttentionTile tile = tile_at(in, tiles - 1 - index);
      const Index rows = tile.rows(), cols = tile.cols(), size = rows * cols;
      const auto rule_tile = rule ? rule->tile(tile) : nullptr;
      before.resize(static_cast<std::size_t>(size));
      scores.resize(before.size());
      d_scores.resize(before.size());
      for (Index head = 0; head < heads; ++head) {
        const Index kv_head = head / (heads / in.k.dim(2));
        const HeadRows q = head_rows(in.q, tile.batch, tile.begin, head);
        const HeadRows k = head_rows(in.k, tile.batch, tile.first_key, kv_head);
        raw_scores(in, tile, head, before.data());
        scores = before;
        if (rule_tile) rule_tile->apply(scores.data());
        mask(in, tile, scores.data());
        // P = e^(s - lse);  dV += Pᵀ dO;  dS = P (dO Vᵀ - out·dO)
        for (Index r = 0; r < rows; ++r) {
          auto row = array(scores.data() + r * cols, cols);
          row = (row - result.lse[(tile.batch * heads + head) * seq_len + tile.begin + r]).exp();
        }
        if (wanted.v)
          serial::gemm_tn(cols, head_dim, rows, scores.data(), cols, d_out.data() + q.offset,
                          q.stride, dv.data() + task * in.v.size() + k.offset, k.stride, Into::add);
        if (!wanted.q && !wanted.k && rule_size == 0) continue;
        serial::gemm_nt(rows, cols, head_dim, d_out.data() + q.offset, q.stride,
                        in.v.data() + k.offset, k.stride, d_scores.data(), cols);
        for (Index r = 0; r < rows; ++r) {
          const Index row = q.offset + r * q.stride;
          const Real delta =
              (array(result.out.data() + row, head_dim) * array(d_out.data() + row, head_dim))
                  .sum();
          auto d = array(d_scores.data() + r * cols, cols);
          d = array(scores.data() + r * cols, cols) * (d - delta);
        }
        if (rule_tile) rule_tile->backward(before.data(), d_scores.data());
        if (!wanted.q && !wanted.k) continue;
        auto d = array(d_scores.data(), size);
        if (in.options.softcap > 0)
          d *= 1 - (array(before.data(), size) / in.options.softcap).square();
        d *= in.options.scale;
        if (wanted.q)
          serial::gemm(rows, head_dim, cols, d_scores.data(), cols, in.k.data() + k.offset,
                       k.stride, grads.q.data() + q.offset, q.stride);
        if (wanted.k)
          serial::gemm_tn(cols, head_dim, rows, d_scores.data(), cols, in.q.data() + q.offset,
                          q.stride, dk.data() + task * in.k.size() + k.offset, k.stride, Into::add);
      }
      if (rule_tile && rule_size > 0) rule_tile->finish(d_rule.data() + task * rule_size);
    }
  });

  const auto reduce = [&](const Tensor& parts, const Shape& shape) {
    if (!parts.defined()) return Tensor();
    Tensor sum(shape);
    const Index size = shape.size();
    parallel_chunks(size, kElementChunk, [&](Index begin, Index end) {
      auto s = array(sum.data() + begin, end - begin);
      s = array(parts.data() + begin, end - begin);
      for (Index task = 1; task < tasks; ++task)
        s += array(parts.data() + task * size + begin, end - begin);
    });
    return sum;
  };
  grads.k = reduce(dk, in.k.shape());
  grads.v = reduce(dv, in.v.shape());
  grads.rule = reduce(d_rule, {rule_size});
  return grads;
}

Variable attention_with_rule(const char* op, const Variable& q, const Variable& k,
                             const Variable& v, const Variable& rule_input,
                             const AttentionOptions& options, std::shared_ptr<const ScoreRule> rule,
                             Tensor* lse) {
  const AttentionInputs inputs{q.value(), k.value(), v.value(), options};
  check_attention_inputs(inputs);
  const AttentionResult result = tiled_attention(inputs, rule.get());
  if (lse != nullptr) *lse = result.lse;
  return Variable::from_op(
      op, result.out, {q, k, v, rule_input},
      [inputs, result, rule, rule_shape = rule_input.shape()](const Tensor& d_out, Grads grads) {
        const WantedGradients wanted{grads[0].wanted(), grads[1].wanted(), grads[2].wanted()};
        AttentionGradients d = tiled_attention_backward(inputs, result, d_out, rule.get(), wanted);
        if (wanted.q) grads[0].add(d.q);
        if (wanted.k) grads[1].add(d.k);
        if (wanted.v) grads[2].add(d.v);
        if (grads[3].wanted()) grads[3].add(d.rule.reshape(rule_shape));
      });
}

Variable attention(const Variable& q, const Variable& k, const Variable& v,
                   const AttentionOptions& options, Tensor* lse) {
  return attention_with_rule("attention", q, k, v, {}, options, nullptr, lse);
}

}  // namespace focus
