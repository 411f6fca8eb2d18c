#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/ops.h"
#include "focus/adapters/mechanism.h"
#include "tests/support/compare.h"

// Attention written naively, one query after the other in double, and inputs to compare on.
namespace focus {

struct BaselineCase {
  Index batch = 2, seq_len = 70, heads = 2, kv_heads = 2, head_dim = 8;
  double spread = 1;
  std::uint64_t seed = 1;
};
inline std::vector<Tensor> inputs_of(const BaselineCase& c) {
  return {randn({c.batch, c.seq_len, c.heads, c.head_dim}, c.seed, c.spread),
          randn({c.batch, c.seq_len, c.kv_heads, c.head_dim}, c.seed + 1, c.spread),
          randn({c.batch, c.seq_len, c.kv_heads, c.head_dim}, c.seed + 2)};
}

/// Settings of a kind of the table, as a config has them: "{pages: 2, page_size: 4}".
inline AnySettings settings_of(std::string_view kind, const std::string& text) {
  AnySettings settings = find_attention(kind, "test").defaults;
  read_config_text(text, "test", {}, settings);
  return settings;
}
/// A mechanism for the inputs of a case, whose layers' input is q.
inline std::unique_ptr<Mechanism> mechanism_of(std::string_view kind, const std::string& settings,
                                               const BaselineCase& c, Index layers = 1) {
  const ModelConfig shape{.hidden_size = c.heads * c.head_dim,
                          .num_hidden_layers = layers,
                          .num_attention_heads = c.heads,
                          .num_key_value_heads = c.kv_heads,
                          .head_dim = c.head_dim,
                          .learned_positions = true};
  return make_mechanism(kind, settings_of(kind, settings), shape);
}
inline Variable attend(Mechanism& mechanism, const Variables& x, const AttentionOptions& options,
                       PairCounts* pairs = nullptr, Index layer = 0) {
  const Variable h = reshape(x[0], {x[0].dim(0), x[0].dim(1), x[0].dim(2) * x[0].dim(3)});
  return mechanism.attend({h, x[0], x[1], x[2], options, layer}, pairs);
}
inline Tensor attend(Mechanism& mechanism, const std::vector<Tensor>& x,
                     const AttentionOptions& options, PairCounts* pairs = nullptr) {
  return attend(mechanism, Variables{x[0], x[1], x[2]}, options, pairs).value();
}

/// One query of one head, with what it could see.
struct NaiveQuery {
  const std::vector<Tensor>& x;
  Index sequence, token, head;
  Index heads() const { return x[0].dim(2); }
  Index kv_heads() const { return x[1].dim(2); }
  Index kv_head() const { return head / (heads() / kv_heads()); }
  Index head_dim() const { return x[0].dim(3); }
  double q(Index d) const { return q_of(token, head, d); }
  double q_of(Index t, Index h, Index d) const {
    return x[0][((sequence * x[0].dim(1) + t) * heads() + h) * head_dim() + d];
  }
  double k(Index j, Index d) const { return of(x[1], j, d); }
  double v(Index j, Index d) const { return of(x[2], j, d); }
  double score(Index j, const AttentionOptions& options) const {
    double s = 0;
    for (Index d = 0; d < head_dim(); ++d) s += q(d) * k(j, d);
    s *= static_cast<double>(options.scale);
    const auto cap = static_cast<double>(options.softcap);
    return cap > 0 ? cap * std::tanh(s / cap) : s;
  }
  bool sees(Index j, const AttentionOptions& options) const {
    return j <= token && (options.sliding_window == 0 || token - j < options.sliding_window);
  }

 private:
  double of(const Tensor& t, Index j, Index d) const {
    return t[((sequence * t.dim(1) + j) * kv_heads() + kv_head()) * head_dim() + d];
  }
};

/// out_i = sum_j weight(query i, j) v_j / sum_j weight(query i, j) over j <= i.
inline Tensor naive_attention(
    const std::vector<Tensor>& x,
    const std::function<double(const NaiveQuery& query, Index key)>& weight) {
  Tensor out(x[0].shape());
  Real* to = out.data();
  for (Index s = 0; s < x[0].dim(0); ++s)
    for (Index i = 0; i < x[0].dim(1); ++i)
      for (Index h = 0; h < x[0].dim(2); ++h) {
        const NaiveQuery query{x, s, i, h};
        std::vector<double> sums(query.head_dim(), 0);
        double total = 0;
        for (Index j = 0; j <= i; ++j) {
          const double w = weight(query, j);
          total += w;
          for (std::size_t d = 0; d < sums.size(); ++d)
            sums[d] += w * query.v(j, static_cast<Index>(d));
        }
        for (const double sum : sums) *to++ = static_cast<Real>(sum / total);
      }
  return out;
}

/// Changes all tokens from `cut` on and demands the same bits before it.
inline void expect_causal(const std::vector<Tensor>& x, Index cut,
                          const std::function<Tensor(const std::vector<Tensor>&)>& attend) {
  std::vector<Tensor> changed;
  for (std::size_t n = 0; n < x.size(); ++n) {
    changed.push_back(x[n].clone());
    const Index per_token = x[n].dim(2) * x[n].dim(3);
    for (Index r = 0; r < x[n].dim(0) * x[n].dim(1); ++r)
      if (r % x[n].dim(1) >= cut)
        for (Index e = 0; e < per_token; ++e)
          changed[n].data()[r * per_token + e] = static_cast<Real>(3 * std::sin(r + 7 * e + 1));
  }
  const Tensor before = attend(x), after = attend(changed);
  const Index per_token = before.dim(2) * before.dim(3);
  bool later_differ = false;
  for (Index e = 0; e < before.size(); ++e) {
    if (e / per_token % before.dim(1) < cut)
      ASSERT_EQ(before[e], after[e]) << "token " << e / per_token % before.dim(1);
    else
      later_differ = later_differ || before[e] != after[e];
  }
  EXPECT_TRUE(later_differ);
}

/// Inputs and options on which a choice of keys could go wrong: sequences shorter than windows and
/// pages or with a rest of one, shared keys, a soft-cap, a layer's own sliding window.
struct AwkwardCase {
  BaselineCase inputs;
  AttentionOptions options;
};
inline std::vector<AwkwardCase> awkward_cases() {
  std::vector<AwkwardCase> cases;
  for (const Index seq_len : {1, 5, 8, 33, 70})
    for (const Index heads : {2, 6})
      for (const Index sliding : {0, 3, 21})
        for (const Real softcap : {Real(0), Real(1.5)})
          cases.push_back(
              {.inputs = {.seq_len = seq_len, .heads = heads},
               .options = {.scale = Real(0.35), .softcap = softcap, .sliding_window = sliding}});
  return cases;
}
inline std::string text_of(const AwkwardCase& c) {
  return "seq_len " + std::to_string(c.inputs.seq_len) + ", heads " +
         std::to_string(c.inputs.heads) + ", sliding " + std::to_string(c.options.sliding_window) +
         ", softcap " + std::to_string(c.options.softcap);
}

/// Which keys a query reads, itself included: true at those, its row of the mask.
using MaskRow = std::vector<bool>;
/// The keys from `begin` on and the first ones, as far as the query sees them.
inline MaskRow local_keys(const NaiveQuery& q, const AttentionOptions& options, Index begin,
                          Index sinks) {
  MaskRow row;
  for (Index j = 0; j <= q.token; ++j)
    row.push_back(q.sees(j, options) && (j >= begin || j < sinks));
  return row;
}
/// The places of the `count` largest, the first of equals.
inline std::vector<Index> largest_places(std::vector<std::pair<double, Index>> values,
                                         Index count) {
  std::ranges::sort(values, [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  std::vector<Index> places;
  for (const auto& [_, place] : values)
    if (static_cast<Index>(places.size()) < count) places.push_back(place);
  return places;
}

/// An indexer's score of key j by query i of a sequence, from its q^I [batch, seq_len, heads * 16],
/// k^I [batch, seq_len, 16] and w [batch, seq_len, heads].
inline double index_score(const std::vector<Tensor>& index, Index sequence, Index i, Index j) {
  const Index heads = index[2].dim(2), query = sequence * index[0].dim(1) + i,
              key = sequence * index[0].dim(1) + j;
  double sum = 0;
  for (Index h = query * heads; h < (query + 1) * heads; ++h) {
    double dot = 0;
    for (Index d = 0; d < 16; ++d)
      dot +=
          static_cast<double>(index[0][h * 16 + d]) * static_cast<double>(index[1][key * 16 + d]);
    sum += static_cast<double>(index[2][h]) * std::max(dot, 0.0);
  }
  return sum;
}

/// Demands that a mechanism's attention is softmax over the keys that `reads` says, written with an
/// explicit mask in double, and that it counts just these pairs.
inline void expect_reads(const AwkwardCase& c, Mechanism& mechanism,
                         const std::function<MaskRow(const NaiveQuery&)>& reads) {
  SCOPED_TRACE(text_of(c) + ", " + mechanism.name());
  const auto x = inputs_of(c.inputs);
  std::int64_t read = 0, all = 0;
  MaskRow row;
  const Tensor expected = naive_attention(x, [&](const NaiveQuery& q, Index j) {
    if (j == 0) {
      row = reads(q);
      for (Index i = 0; i <= q.token; ++i) {
        read += row[i] ? 1 : 0;
        all += q.sees(i, c.options) ? 1 : 0;
      }
    }
    return row[j] ? std::exp(q.score(j, c.options)) : 0;
  });
  PairCounts pairs;
  EXPECT_LE(relative_difference(attend(mechanism, x, c.options, &pairs), expected),
            tolerance(1e-5, 1e-12));
  EXPECT_EQ(pairs.all * c.inputs.heads, all);
  EXPECT_EQ(pairs.attended, (read + c.inputs.heads / 2) / c.inputs.heads);
}

}  // namespace focus
