#include "autograd/gemm/gemm.h"
#include "focus/adapters/baselines/selected_keys.h"

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

struct MobaSettings {
  static constexpr const char* kKind = "moba";
  Index blocks = 2;
  Index block_size = 64;

  void visit(auto&& f) {
    f("blocks", blocks, "blocks that a query reads in addition to its own", {0, 1 << 27});
    f("block_size", block_size, "positions per block", {1, 1 << 27});
  }
};

struct Moba final : MechanismWith<MobaSettings> {
  using MechanismWith::MechanismWith;

  std::string name() const override {
    return fmt::format("moba b={}x{}", config_.blocks, config_.block_size);
  }
  LocalZone own_block() const { return {.block = config_.block_size}; }

  Variable attend(const MechanismInputs& in, PairCounts* pairs) override {
    const Index size = config_.block_size, dim = in.k.dim(3);
    const KeyBlocks means(in.k.value(), size, dim, [=](const Real* keys, Index stride, Real* mean) {
      for (Index t = 0; t < size; ++t)
        for (Index c = 0; c < dim; ++c) mean[c] += keys[t * stride + c];
      for (Index c = 0; c < dim; ++c) mean[c] /= static_cast<Real>(size);
    });
    const auto score = [&](const QueryRun& run, LargestBlocks::Scores& scores) {
      const HeadView& head = run.head;
      Real* to = scores.resize(head.query_heads, run.rows(), means.blocks).data();
      for (Index h = 0; h < head.query_heads; ++h, to += run.rows() * means.blocks)
        serial::gemm_nt(run.rows(), means.blocks, dim, head.query(run.begin, h), head.q_stride,
                        means.of(run), dim, to, means.blocks);
    };
    return attend_largest(kind(), in, own_block(), config_.blocks, score, pairs);
  }
  double multiply_adds_to_select(const MechanismInputs& in, const PairCounts&) const override {
    const auto blocks = own_block().distant_blocks(in.q.dim(1), in.options.sliding_window);
    return static_cast<double>(in.q.dim(0) * in.q.dim(2) * blocks * in.q.dim(3));
  }
};

}  // namespace

AdapterKind moba_kind() {
  return mechanism_kind<Moba>("blocks by their mean key at inference (MoBA)",
                              AdapterRole::selection);
}

}  // namespace focus
