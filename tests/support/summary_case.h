#pragma once

#include <fmt/ranges.h>

#include "tests/support/compare.h"
#include "tests/support/summary_reference.h"

// Cases of attention with summary columns, and their comparison with the reference.
namespace focus {

enum class Spread { random, one_group, empty_group };

/// One attention of random inputs.
struct SummaryCase {
  Index batch = 1, seq_len = 90, heads = 2, kv_heads = 2, head_dim = 8, groups = 5,
        num_selected_groups = 1;
  Index window = 7, block = 4, sinks = 1, sliding_window = 0;
  double softcap = 0;
  UnselectedGroups unselected_groups = UnselectedGroups::summary;
  bool one_for_all = false;  // key heads share their group_ids
  GroupSelection selection = GroupSelection::mass;
  Spread spread = Spread::random;
  double sharp = 1;  // q is so much larger
  double width = 0;
  SelectionPer selection_per = SelectionPer::key_head;
  std::vector<Index> selected_by_head = {};
  bool summary_width = false;  // it counts in the columns' own scores, differently for each head
  std::uint64_t seed = 1;

  bool reads_own() const { return selection == GroupSelection::own; }
  std::string str() const {
    return fmt::format(
        "batch {} T {} heads {}/{} head_dim {} K {} m {} w {} block {} sinks {} sliding {} softcap "
        "{}{}{}{} spread {} width {}{} {} [{}] seed {}",
        batch, seq_len, heads, kv_heads, head_dim, groups, num_selected_groups, window, block,
        sinks, sliding_window, softcap, unselected_groups == UnselectedGroups::drop ? " drop" : "",
        one_for_all ? " one for all" : "", reads_own() ? " own" : "", static_cast<int>(spread),
        width, summary_width ? " and in scores" : "", value_text(selection_per),
        fmt::join(selected_by_head, " "), seed);
  }
};

/// z, of which group_ids are the largest.
inline Tensor group_scores_of(const SummaryCase& c) {
  const Index heads = c.one_for_all || c.reads_own() ? 1 : c.kv_heads;
  Tensor z = randn({c.batch, c.seq_len, heads, c.groups}, c.seed + 4);
  for (Index row = 0; row < z.rows(); ++row) {
    Real* of_token = z.data() + row * c.groups;
    Real* special = of_token + c.groups / 2;
    if (c.spread == Spread::one_group)
      std::swap(*special, *std::max_element(of_token, of_token + c.groups));
    if (c.spread == Spread::empty_group)
      std::swap(*special, *std::min_element(of_token, of_token + c.groups));
  }
  return z;
}

inline SummaryInputs summary_inputs_of(const SummaryCase& c) {
  SummaryInputs in;
  in.q = randn({c.batch, c.seq_len, c.heads, c.head_dim}, c.seed + 1, c.sharp);
  in.k = randn({c.batch, c.seq_len, c.kv_heads, c.head_dim}, c.seed + 2);
  in.v = randn({c.batch, c.seq_len, c.kv_heads, c.head_dim}, c.seed + 3);
  in.summary_bias = randn({c.kv_heads, c.groups}, c.seed + 5, 0.5);
  in.z = group_scores_of(c);
  in.group_ids = group_ids_of(Variable(in.z), in.tau);
  in.options = {.scale = static_cast<Real>(1.3 / std::sqrt(static_cast<double>(c.head_dim))),
                .softcap = static_cast<Real>(c.softcap),
                .sliding_window = c.sliding_window};
  in.summary = {.local_window = c.window,
                .block = c.block,
                .sinks = c.sinks,
                .num_selected_groups = c.num_selected_groups,
                .selection = c.selection,
                .selection_per = c.selection_per,
                .unselected_groups = c.unselected_groups,
                .width = c.width,
                .selected_by_head = c.selected_by_head};
  for (Index h = 0; c.summary_width && h < c.heads; ++h)
    in.summary.summary_width.push_back(static_cast<Real>((h + 2) % 4) / 3);
  return in;
}

/// Value, then gradients of q, k, v, summary_bias and z.
struct SummaryRun {
  std::vector<Tensor> tensors;
  SummaryReport report;
};
inline SummaryRun run_summary(const SummaryInputs& in, const Tensor& d_out) {
  SummaryRun run;
  const Variables x = leaves({in.q, in.k, in.v, in.summary_bias});
  const Variable z = leaf(in.z);
  GroupIds group_ids = in.group_ids;
  group_ids.shares = group_ids_of(z, in.tau).shares;
  const Variable out =
      summary_attention(x[0], x[1], x[2], group_ids, x[3], in.options, in.summary, &run.report);
  backward(multiply(out, Variable(d_out)));
  run.tensors = {out.value()};
  for (const Variable& input : x) run.tensors.push_back(input.grad());
  run.tensors.push_back(z.grad());
  return run;
}
inline Tensor d_out_of(const SummaryCase& c) {
  return randn({c.batch, c.seq_len, c.heads, c.head_dim}, c.seed + 6);
}

/// The largest difference from the reference in value and gradients, and where; infinite where the
/// selection or the number of pairs is another.
inline std::pair<double, std::string> difference_from_reference(const SummaryInputs& in,
                                                                const Tensor& d_out) {
  const SummaryRun run = run_summary(in, d_out);
  const SummaryReference expected(in, run.report.selected, d_out, tolerance(1e-4, 1e-11));
  if (!expected.complaint.empty()) return {INFINITY, expected.complaint};
  if (run.report.pairs != expected.results.pairs) return {INFINITY, "pairs"};
  if (run.report.scored != expected.results.scored) return {INFINITY, "scored"};
  std::pair<double, std::string> worst{0, "nowhere"};
  const auto consider = [&](const std::string& what, const Tensor& actual,
                            const std::vector<double>& wanted, double floor) {
    const double difference =
        actual.defined() ? relative_error(actual.span(), wanted, floor) : INFINITY;
    if (!(difference <= worst.first)) worst = {difference, what};
  };
  const SummaryResults& all = expected.results;
  consider("out", run.tensors[0], all.out, 1e-30);
  consider("lse", run.report.lse, all.lse, 1);
  // Beside 1: gradients that are zero but for rounding have no scale of their own.
  consider("dq", run.tensors[1], all.dq, 1);
  consider("dk", run.tensors[2], all.dk, 1);
  consider("dv", run.tensors[3], all.dv, 1);
  consider("dbeta", run.tensors[4], all.d_summary_bias, 1);
  consider("dz", run.tensors[5], all.dz, 1);
  return worst;
}

inline const double kSummaryTolerance = tolerance(2e-5, 1e-10);

inline void expect_reference(const SummaryCase& c, double accepted = kSummaryTolerance) {
  const auto [worst, where] = difference_from_reference(summary_inputs_of(c), d_out_of(c));
  EXPECT_LE(worst, accepted) << where << " of " << c.str();
}

}  // namespace focus
