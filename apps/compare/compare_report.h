#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/compare/claims.h"
#include "apps/compare/compare_run.h"
#include "focus/evaluation/attention_row.h"

namespace focus::app {

/// What a comparison has come to, in the order of its runs.
struct ComparedRows {
  /// One object for each run, seed, text and attention; a failed run has one with its "error".
  std::vector<nlohmann::ordered_json> texts = {};
  std::vector<nlohmann::ordered_json> tasks = {}, recall = {};  // task_rows(), recall_rows()

  /// One after the other.
  std::vector<nlohmann::ordered_json> all() const;
};
ComparedRows compared_rows(const std::vector<RunOutcome>& outcomes);
/// Those that stand in a compare.jsonl; its claims are left out. Throws std::runtime_error where
/// the file cannot be read or a line is none of them.
ComparedRows read_compared_rows(const std::filesystem::path& path);

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
/// For a terminal.
std::string compare_table(const ComparedRows& rows, const std::vector<ClaimOutcome>& claims);
/// The page. Curves are read from the metrics files of `outcomes`, which may be none.
std::string compare_page(const ComparePlan& plan, const ComparedRows& rows,
                         const std::vector<ClaimOutcome>& claims,
                         const std::vector<RunOutcome>& outcomes);

}  // namespace focus::app
