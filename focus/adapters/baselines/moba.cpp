#include "focus/adapters/baselines/moba.h"

#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/gemm/gemm.h"
#include "focus/adapters/baselines/selected_keys.h"
#include "focus/adapters/mechanism.h"

// MoBA, mixture of block attention (Lu et al. 2025, arXiv 2502.13189): keys lie in blocks of B
// positions, and a query attends, exactly, the blocks whose mean key is nearest to it,
//   s_ib = q_i . mean of k_j over block b     (their equation 6)
// and its own block up to itself. Each query head selects for itself, as theirs do where heads
// share keys. `blocks` is the number beside the own one, which the paper counts too: its top-k is
// blocks + 1.
//
// Candidates are the blocks before the own one; a block with no key in the layer's sliding window
// is no block; of one that reaches it, the keys outside are masked (the mean is of all of them).
// With as many blocks as there are it is attention(). Differences: theirs trains the model through
// the blocks that were selected and keeps some layers dense; here a model is evaluated as it is,
// all layers alike, and there is no gradient. Choosing costs a product of head_dim a block and
// query head, the work of half a pair for B. Causal.
namespace focus {
namespace {

/// Mean keys of the whole blocks of each sequence and key head: [batch * kv_heads, blocks, d].
struct BlockMeans {
  BlockMeans(const Tensor& k, Index block_size)
      : blocks(k.dim(1) / block_size), width(k.dim(3)), kv_heads(k.dim(2)) {
    const Index seq_len = k.dim(1), all = k.dim(0) * kv_heads;
    numbers.resize(static_cast<std::size_t>(all * blocks * width), 0);
    parallel_chunks(all, 1, [&](Index n, Index) {
      const Real* keys = k.data() + (n / kv_heads * seq_len * kv_heads + n % kv_heads) * width;
      for (Index block = 0; block < blocks; ++block) {
        Real* mean = numbers.data() + (n * blocks + block) * width;
        for (Index t = block * block_size; t < (block + 1) * block_size; ++t)
          for (Index c = 0; c < width; ++c) mean[c] += keys[t * kv_heads * width + c];
        for (Index c = 0; c < width; ++c) mean[c] /= static_cast<Real>(block_size);
      }
    });
  }
  const Real* of(Index sequence, Index kv_head) const {
    return numbers.data() + (sequence * kv_heads + kv_head) * blocks * width;
  }

  Index blocks, width, kv_heads;
  std::vector<Real> numbers;
};

/// s of a run's queries: [query_heads, end - begin, blocks].
std::vector<Real> block_scores(const QueryRun& run, const BlockMeans& means) {
  const HeadView& head = run.head;
  const Index rows = run.end - run.begin;
  std::vector<Real> scores(static_cast<std::size_t>(head.query_heads * rows * means.blocks));
  for (Index h = 0; h < head.query_heads; ++h)
    serial::gemm_nt(rows, means.blocks, means.width, head.query(run.begin, h), head.q_stride,
                    means.of(run.sequence, run.kv_head), means.width,
                    scores.data() + h * rows * means.blocks, means.blocks);
  return scores;
}

LocalZone local_blocks(const MobaConfig& config) {
  return {.sinks = 0, .local_window = 0, .block = config.block_size};
}

class MobaMechanism final : public Mechanism {
 public:
  using Settings = MobaConfig;
  MobaMechanism(const Settings& settings, const ModelConfig& shape)
      : Mechanism("moba", settings, shape), config_(settings) {}

  std::string name() const override {
    return fmt::format("moba b={}x{}", config_.blocks, config_.block_size);
  }

 protected:
  Variable attend(const MechanismInputs& in, PairCounts* pairs) override {
    return moba_attention(in.q, in.k, in.v, in.options, config_, pairs);
  }
  double multiply_adds_to_select(const MechanismInputs& in, const PairCounts&) const override {
    const std::int64_t blocks = distant_blocks(local_blocks(config_), config_.block_size,
                                               in.q.dim(1), in.options.sliding_window);
    return static_cast<double>(in.q.dim(0) * in.q.dim(2) * blocks * in.q.dim(3));
  }

 private:
  const Settings config_;
};

}  // namespace

void MobaConfig::validate() const {
  check(blocks >= 0 && block_size >= 1,
        "moba: block_size must be at least 1 and blocks not negative, not {} and {}", block_size,
        blocks);
}

Variable moba_attention(const Variable& q, const Variable& k, const Variable& v,
                        const AttentionOptions& options, const MobaConfig& config,
                        PairCounts* pairs) {
  const BlockMeans means(k.value(), config.block_size);
  const LocalZone local = local_blocks(config);
  const auto selection = [&](const QueryRun& run) -> KeySelection {
    return [&config, begin = run.begin, rows = run.end - run.begin, blocks = means.blocks,
            heads = run.head.query_heads, scores = block_scores(run, means),
            largest = LargestOf()](Index token, KeyRange distant, KeysRead& read) mutable {
      const Index size = config.block_size;
      const KeyRange candidates{distant.begin / size, distant.end / size};
      for (Index h = 0; h < heads; ++h)
        for (const Index block : largest(scores.data() + (h * rows + token - begin) * blocks,
                                         candidates, config.blocks))
          read.add(h, {block * size, (block + 1) * size});
    };
  };
  return attend_selected("moba", q, k, v, options, local, selection, pairs);
}

AdapterKind moba_kind() {
  return mechanism_kind<MobaMechanism>("moba", "blocks by their mean key at inference (MoBA)",
                                       AdapterRole::selection);
}

}  // namespace focus
