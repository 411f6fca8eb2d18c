// Attention with summary columns against the reference implementation in float64.
#include "focus/method/summary/summary_attention.h"
#include "tests/support/compare.h"
#include "tests/support/golden_model.h"

namespace focus {
namespace {

/// [batch, heads, seq_len] of our [batch, seq_len, heads]
template <class T>
T at_head(std::span<const T> of_tokens, Index heads, Index seq_len, Index b, Index h, Index t) {
  return of_tokens[(b * seq_len + t) * heads + h];
}

struct Inputs {
  Variable q, k, v, summary_bias, centroids, bias, own_scores;
};

class SummaryGolden : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    file_.emplace(GetParam());
    own_ = file_->text_attribute("routing") == "own";
    const auto number = [&](const char* name) { return file_->attribute(name); };
    options_ = {.scale = static_cast<Real>(number("scale")),
                .softcap = static_cast<Real>(number("softcap")),
                .sliding_window = static_cast<Index>(number("sliding_window"))};
    summary_.local_window = static_cast<Index>(number("window"));
    summary_.block = static_cast<Index>(number("block"));
    summary_.sinks = static_cast<Index>(number("sinks"));
    summary_.width = file_->attribute_or("width", 0);
    if (file_->attribute_or("per_query_head", 0) == 0)
      summary_.selection_per = SelectionPer::key_head;
    if (file_->has("selected_by_head"))
      for (const auto m : file_->ids("selected_by_head")) summary_.selected_by_head.push_back(m);
    if (file_->has("summary_width"))
      for (const double share : file_->numbers("summary_width"))
        summary_.summary_width.push_back(static_cast<Real>(share));
    tau_ = number("tau");
    summary_.selection = own_ ? GroupSelection::own : GroupSelection::mass;
    groups_ = static_cast<Index>(number("groups"));
  }
  Inputs inputs() const {
    const auto with_heads = [&](const char* name) { return leaf(swap_heads(file_->tensor(name))); };
    Inputs in{
        with_heads("q"), with_heads("k"), with_heads("v"), leaf(file_->tensor("beta")), {}, {}, {}};
    if (own_) {
      in.own_scores = leaf(file_->tensor("own_scores"));
    } else {
      in.centroids = leaf(file_->tensor("centroids"));
      in.bias = leaf(file_->tensor("bias"));
    }
    return in;
  }
  /// z as the routing has it; the keys a constant of it, or not.
  Variable scores(const Inputs& in, bool through_keys) const {
    if (own_) return reshape(in.own_scores, {in.q.dim(0), in.q.dim(1), 1, groups_});
    return group_scores(through_keys ? in.k : Variable(in.k.value()), in.centroids, in.bias);
  }
  Variable run(const Inputs& in, Index top_groups, bool through_keys, SummaryReport& report) {
    summary_.num_selected_groups = top_groups;
    return summary_attention(in.q, in.k, in.v, group_ids_of(scores(in, through_keys), tau_),
                             in.summary_bias, options_, summary_, &report);
  }

  void check_groups(Index top_groups) {
    const std::string prefix = fmt::format("m_{}/", top_groups);
    const Inputs in = inputs();
    SummaryReport report;
    const Variable out = run(in, top_groups, false, report);
    expect_close(prefix + "out", swap_heads(out.value()), file_->numbers(prefix + "out"));
    expect_close(prefix + "lse", report.lse, file_->numbers(prefix + "lse"));
    check_selection(in, prefix, report);
    backward(multiply(out, Variable(swap_heads(file_->tensor("d_out")))));
    const auto grad = [&](const char* name, const Variable& of, bool heads) {
      expect_close(prefix + "grad_" + name, heads ? swap_heads(of.grad()) : of.grad(),
                   file_->numbers(prefix + "grad_" + name));
    };
    grad("q", in.q, true);
    grad("k", in.k, true);
    grad("v", in.v, true);
    grad("beta", in.summary_bias, false);
    if (own_) {
      grad("own_scores", in.own_scores, false);
      return;
    }
    grad("centroids", in.centroids, false);
    grad("bias", in.bias, false);
    const Inputs again = inputs();
    backward(multiply(run(again, top_groups, true, report),
                      Variable(swap_heads(file_->tensor("d_out")))));
    expect_close(prefix + "grad_k_through_classes", swap_heads(again.k.grad()),
                 file_->numbers(prefix + "grad_k_through_classes"));
  }

  void check_selection(const Inputs& in, const std::string& prefix,
                       const SummaryReport& report) const {
    const Index batch = in.q.dim(0), seq_len = in.q.dim(1);
    const Index heads = summary_.query_heads_select() ? in.q.dim(2) : in.k.dim(2);
    const auto expected = file_->ids(prefix + "chosen");  // [batch, heads, seq_len, groups]
    std::vector<char> selected(expected.size(), 0);
    for (Index rank = 0; rank < summary_.most_selected(); ++rank)
      for (Index b = 0; b < batch; ++b)
        for (Index t = 0; t < seq_len; ++t)
          for (Index h = 0; h < heads; ++h) {
            if (rank >= summary_.selected_of(h)) continue;
            const auto from = ((rank * batch + b) * seq_len + t) * heads + h;
            selected[((b * heads + h) * seq_len + t) * groups_ + report.selected[from]] = 1;
          }
    for (std::size_t i = 0; i < expected.size(); ++i)
      ASSERT_EQ(selected[i], expected[i]) << prefix << "chosen, element " << i;
    const auto pairs = file_->numbers(prefix + "pairs");
    for (Index b = 0; b < batch; ++b)
      EXPECT_NEAR(static_cast<double>(report.pairs[b]) / static_cast<double>(in.q.dim(2)), pairs[b],
                  1e-6)
          << prefix << "pairs";
  }

  std::optional<GoldenFile> file_;
  AttentionOptions options_;
  SummarySettings summary_;
  Index groups_ = 0;
  double tau_ = 1;
  bool own_ = false;
};

TEST_P(SummaryGolden, ClassesAgree) {
  const Inputs in = inputs();
  const Variable z = scores(in, false);
  const Index batch = z.dim(0), seq_len = z.dim(1), heads = z.dim(2);
  const auto expected = file_->numbers("z");  // [batch, heads, seq_len, groups]
  expect_close("z", swap_heads(z.value()), expected);
  const GroupIds group_ids = group_ids_of(z, tau_);
  const auto ids = file_->ids("classes");
  for (Index b = 0; b < batch; ++b)
    for (Index h = 0; h < heads; ++h)
      for (Index t = 0; t < seq_len; ++t)
        ASSERT_EQ(at_head<std::uint8_t>(group_ids.ids, heads, seq_len, b, h, t),
                  ids[(b * heads + h) * seq_len + t])
            << "token " << t << " of head " << h;
  if (own_) return;
  EXPECT_EQ(nearest_groups(in.k.value(), in.centroids.value(), in.bias.value()).ids, group_ids.ids);
}

TEST_P(SummaryGolden, AttentionAgreesForEveryNumberOfExactGroups) {
  int found = 0;
  for (Index m = 0; m <= groups_; ++m)
    if (file_->has(fmt::format("m_{}/out", m))) {
      check_groups(m);
      ++found;
    }
  EXPECT_GT(found, 0) << "no m_N in " << GetParam();
}

INSTANTIATE_TEST_SUITE_P(Files, SummaryGolden, testing::ValuesIn(golden_entries("summary", ".h5")),
                         test_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SummaryGolden);

TEST(SummaryGoldenFiles, AreThere) {
  EXPECT_FALSE(golden_entries("summary", ".h5").empty())
      << "no summary/*.h5 under " << golden_folder();
}

}  // namespace
}  // namespace focus
