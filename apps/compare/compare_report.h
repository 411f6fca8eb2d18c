#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/compare/claims.h"
#include "apps/compare/compare_run.h"
#include "focus/train/attention_row.h"

namespace focus {

/// One object for each run, seed, text and attention; a failed run has one with its "error".
/// Those of benchmarks are task_rows(), those of recall recall_rows().
std::vector<nlohmann::ordered_json> compare_rows(const std::vector<RunOutcome>& outcomes);

/// Over the seeds of a run: perplexity's mean and spread, the means of the rest.
struct CompareGroup {
  std::string run, split;
  AttentionRow attention;
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
std::vector<CompareGroup> group_rows(const std::vector<nlohmann::ordered_json>& rows);

std::string compare_csv(const std::vector<nlohmann::ordered_json>& rows);
std::string compare_jsonl(const std::vector<nlohmann::ordered_json>& rows);
/// One after the other: what claims are held against. `tasks` are task_rows(), `recall`
/// recall_rows().
std::vector<nlohmann::ordered_json> all_rows(const std::vector<nlohmann::ordered_json>& rows,
                                             const std::vector<nlohmann::ordered_json>& tasks,
                                             const std::vector<nlohmann::ordered_json>& recall);
/// For a terminal, of the same.
std::string compare_table(const std::vector<nlohmann::ordered_json>& rows,
                          const std::vector<nlohmann::ordered_json>& tasks,
                          const std::vector<nlohmann::ordered_json>& recall,
                          const std::vector<ClaimOutcome>& claims = {});
/// The page; curves are read from the runs' metrics files.
std::string compare_page(const ComparePlan& plan, const std::vector<RunOutcome>& outcomes);

}  // namespace focus
