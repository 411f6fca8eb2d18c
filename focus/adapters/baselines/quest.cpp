#include "autograd/gemm/gemm.h"
#include "focus/adapters/baselines/selected_keys.h"

// Quest (Tang et al. 2024, arXiv 2406.10774): keys lie in pages of P positions, of which the
// elementwise least m_p and greatest M_p are kept. No key of page p can score more than
//   u_ip = sum over d of max(q_id m_pd, q_id M_pd)     (their algorithm 1)
// and a query attends, exactly, the pages of largest u. Heads that share keys select together, by
// the sum of their u: that is (sum of q+) . M_p + (sum of q-) . m_p, one product for all of them.
//
// Candidates are complete pages that lie wholly before the local zone, which begins with the page
// that i - local_window is in; a page with no key in the layer's sliding window is no page, of one
// that reaches into it the keys outside are masked. With as many pages as there are it is
// attention(). Differences: the local zone and the sinks are always read, where theirs has the last
// page alone; theirs leaves the first two layers dense, here every layer selects; every token of a
// text is treated so, where theirs selects for what it generates; and for grouped queries theirs
// says nothing. Choosing costs 2 head_dim multiply-adds a page and key head, the work of one pair
// for P. Causal.
namespace focus {
namespace {

struct QuestSettings {
  static constexpr const char* kKind = "quest";
  Index pages = 4;
  Index page_size = 16;
  Index local_window = 32;
  Index sinks = 4;

  void visit(auto&& f) {
    f("pages", pages, "number of distant pages that a query reads", {0, 1 << 27});
    f("page_size", page_size,
      "positions per page; the local window reaches back to the start of one", {1, 1 << 27});
    visit_local(f, local_window, sinks);
  }
};

struct Quest final : MechanismWith<QuestSettings> {
  using MechanismWith::MechanismWith;

  std::string name() const override {
    return fmt::format("quest p={}x{} w={}", config_.pages, config_.page_size,
                       config_.local_window);
  }
  LocalZone local_zone() const { return {config_.sinks, config_.local_window, config_.page_size}; }

  Variable attend(const MechanismInputs& in, PairCounts* pairs) override {
    const Index size = config_.page_size, d = in.k.dim(3), width = 2 * d;
    // [M_p, m_p]
    const KeyBlocks bounds(in.k.value(), size, width,
                           [=](const Real* keys, Index stride, Real* to) {
                             for (Index c = 0; c < d; ++c) to[c] = to[d + c] = keys[c];
                             for (Index t = 1; t < size; ++t)
                               for (Index c = 0; c < d; ++c) {
                                 to[c] = std::max(to[c], keys[t * stride + c]);
                                 to[d + c] = std::min(to[d + c], keys[t * stride + c]);
                               }
                           });
    const auto score = [&](const QueryRun& run, LargestBlocks::Scores& scores) {
      std::vector<Real> signs(run.rows() * width, 0);  // [q+, q-]
      for (Index r = 0; r < run.rows(); ++r)
        for (Index h = 0; h < run.head.query_heads; ++h) {
          const Real* q = run.head.query(run.begin + r, h);
          Real* to = signs.data() + r * width;
          for (Index c = 0; c < d; ++c) {
            to[c] += std::max(q[c], Real(0));
            to[d + c] += std::min(q[c], Real(0));
          }
        }
      serial::gemm_nt(run.rows(), bounds.blocks, width, signs.data(), width, bounds.of(run), width,
                      scores.resize(1, run.rows(), bounds.blocks).data(), bounds.blocks);
    };
    return attend_largest(kind(), in, local_zone(), config_.pages, score, pairs);
  }
  double multiply_adds_to_select(const MechanismInputs& in, const PairCounts&) const override {
    const auto pages = local_zone().distant_blocks(in.q.dim(1), in.options.sliding_window);
    return static_cast<double>(in.k.dim(0) * in.k.dim(2) * pages * 2 * in.k.dim(3));
  }
};

}  // namespace

AdapterKind quest_kind() {
  return mechanism_kind<Quest>("pages by their key bounds at inference (Quest)",
                               AdapterRole::selection);
}

}  // namespace focus
