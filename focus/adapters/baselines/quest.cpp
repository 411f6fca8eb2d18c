#include "focus/adapters/baselines/quest.h"

#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/gemm/gemm.h"
#include "focus/adapters/baselines/selected_keys.h"
#include "focus/adapters/mechanism.h"

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

/// [M_p, m_p] of the complete pages of each sequence and key head: [batch * kv_heads, pages, 2 d].
struct PageBounds {
  PageBounds(const Tensor& k, Index page_size)
      : pages(k.dim(1) / page_size), width(2 * k.dim(3)), kv_heads(k.dim(2)) {
    const Index seq_len = k.dim(1), d = k.dim(3), all = k.dim(0) * kv_heads;
    numbers.resize(static_cast<std::size_t>(all * pages * width));
    parallel_chunks(all, 1, [&](Index n, Index) {
      const Real* keys = k.data() + (n / kv_heads * seq_len * kv_heads + n % kv_heads) * d;
      for (Index page = 0; page < pages; ++page) {
        Real* greatest = numbers.data() + (n * pages + page) * width;
        Real* least = greatest + d;
        for (Index t = 0; t < page_size; ++t) {
          const Real* key = keys + (page * page_size + t) * kv_heads * d;
          for (Index c = 0; c < d; ++c) {
            greatest[c] = t == 0 ? key[c] : std::max(greatest[c], key[c]);
            least[c] = t == 0 ? key[c] : std::min(least[c], key[c]);
          }
        }
      }
    });
  }
  const Real* of(Index sequence, Index kv_head) const {
    return numbers.data() + (sequence * kv_heads + kv_head) * pages * width;
  }

  Index pages, width, kv_heads;
  std::vector<Real> numbers;
};

/// u of a run's queries, summed over the heads: [end - begin, pages].
std::vector<Real> page_scores(const QueryRun& run, const PageBounds& bounds) {
  const Index rows = run.end - run.begin, d = run.head.head_dim;
  std::vector<Real> signs(static_cast<std::size_t>(rows * bounds.width), 0);  // [q+, q-]
  for (Index r = 0; r < rows; ++r)
    for (Index h = 0; h < run.head.query_heads; ++h) {
      const Real* q = run.head.query(run.begin + r, h);
      Real* to = signs.data() + r * bounds.width;
      for (Index c = 0; c < d; ++c) {
        to[c] += std::max(q[c], Real(0));
        to[d + c] += std::min(q[c], Real(0));
      }
    }
  std::vector<Real> scores(static_cast<std::size_t>(rows * bounds.pages));
  serial::gemm_nt(rows, bounds.pages, bounds.width, signs.data(), bounds.width,
                  bounds.of(run.sequence, run.kv_head), bounds.width, scores.data(), bounds.pages);
  return scores;
}

LocalZone local_zone(const QuestConfig& config) {
  return {.sinks = config.sinks, .local_window = config.local_window, .block = config.page_size};
}

class QuestMechanism final : public Mechanism {
 public:
  using Settings = QuestConfig;
  QuestMechanism(const Settings& settings, const ModelConfig& shape)
      : Mechanism("quest", settings, shape), config_(settings) {}

  std::string name() const override {
    return fmt::format("quest p={}x{} w={}", config_.pages, config_.page_size,
                       config_.local_window);
  }

 protected:
  Variable attend(const MechanismInputs& in, PairCounts* pairs) override {
    return quest_attention(in.q, in.k, in.v, in.options, config_, pairs);
  }
  double multiply_adds_to_select(const MechanismInputs& in, const PairCounts&) const override {
    const std::int64_t pages = distant_blocks(local_zone(config_), config_.page_size, in.q.dim(1),
                                              in.options.sliding_window);
    return static_cast<double>(in.k.dim(0) * in.k.dim(2) * pages * 2 * in.k.dim(3));
  }

 private:
  const Settings config_;
};

}  // namespace

void QuestConfig::validate() const {
  check(pages >= 0 && page_size >= 1 && local_window >= 0 && sinks >= 0,
        "quest: page_size must be at least 1; pages, local_window and sinks not negative");
}

Variable quest_attention(const Variable& q, const Variable& k, const Variable& v,
                         const AttentionOptions& options, const QuestConfig& config,
                         PairCounts* pairs) {
  const PageBounds bounds(k.value(), config.page_size);
  const LocalZone local = local_zone(config);
  const auto selection = [&](const QueryRun& run) -> KeySelection {
    return [&config, begin = run.begin, pages = bounds.pages, scores = page_scores(run, bounds),
            largest = LargestOf()](Index token, KeyRange distant, KeysRead& read) mutable {
      const Index size = config.page_size;
      const KeyRange candidates{distant.begin / size, distant.end / size};
      for (const Index page :
           largest(scores.data() + (token - begin) * pages, candidates, config.pages))
        read.add_for_all_heads({page * size, (page + 1) * size});
    };
  };
  return attend_selected("quest", q, k, v, options, local, selection, pairs);
}

AdapterKind quest_kind() {
  return mechanism_kind<QuestMechanism>("quest", "pages by their key bounds at inference (Quest)",
                                        AdapterRole::selection);
}

}  // namespace focus
