#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "focus/evaluation/report/compare_rows.h"

namespace focus {

/// Over the seeds of a run: perplexity's mean and spread, the means of the rest.
struct CompareGroup {
  std::string run, method, split;
  AttentionLabel attention;
  std::size_t seeds = 0;
  double mean = 0, deviation = 0, least = 0, most = 0;  // of the perplexity; deviation by n - 1
  double bits_per_byte = 0;
  bool against_dense = false;  // then means of KL, difference and its standard error over tokens
  double kl = 0, difference = 0, difference_error = 0;
  bool has_far = false;  // then means of nats on far tokens and of what is kept of the gain
  double nats_far = 0, kept_far = 0, kept_all = 0;
  double pairs = 0, choosing = 0, largest_group = 0;  // shares; largest_group 0 without groups
  double train_rate = 0, eval_rate = 0;               // tokens in a second
  double trainable = 0, peak_bytes = 0;
};
/// In the order of the rows; failed runs are left out.
std::vector<CompareGroup> group_rows(const std::vector<TextRow>& rows);

/// For a terminal.
std::string compare_table(const ComparedRows& rows);

/// What a page says of a comparison's config.
struct ComparedConfig {
  std::string title;
  std::size_t runs = 0;  // that are planned
  std::vector<std::int64_t> seeds = {};
  bool against_dense = false;
  Index far = 0;  // tokens of short context; 0: no far tokens
};
/// The page. Curves are read from the metrics files of `outcomes`, which may be none.
std::string compare_page(const ComparedConfig& config, const ComparedRows& rows,
                         const std::vector<RunOutcome>& outcomes);

}  // namespace focus
