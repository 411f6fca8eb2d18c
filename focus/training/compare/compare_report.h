#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "focus/evaluation/report/evaluation_file.h"
#include "focus/training/compare/compare_plan.h"
#include "focus/training/training.h"

// The rows of a comparison: the lines of its compare.jsonl, its CSV tables, its page.
namespace focus {

/// What became of a run of a comparison.
struct RunOutcome {
  std::string name = {};
  RunConfig config = {};
  std::string hash = {};                     // empty if what the run reads cannot be read
  std::string error = {};                    // one line; empty if it is done
  std::optional<TrainingResult> train = {};  // none if it failed
  /// What focus eval wrote, by the splits of the texts.
  std::vector<std::pair<std::string, TextEvaluation>> evaluation = {};
  std::vector<RecallEvaluation> recall = {};  // what focus eval --recall wrote
};

/// The run of a row.
struct RunColumns {
  std::string name = {};
  std::int64_t seed = 0;
  std::string hash = {}, method = {};
  std::optional<std::int64_t> trainable_parameters = {}, train_tokens = {};

  void visit(auto&& f) {
    f("run", name);
    FOCUS_MEMBERS(f, seed, hash, method, trainable_parameters, train_tokens);
  }
};

/// One attention on the texts of a split, or why a run failed.
struct TextRow {
  RunColumns run = {};
  std::optional<std::string> error = {};  // then nothing follows
  std::optional<double> train_tokens_per_second = {};
  std::optional<std::int64_t> train_peak_bytes = {};
  std::string split = {}, texts = {}, tokenizer = {};
  std::int64_t context = 0, stride = 0, documents = 0, bytes = 0;
  Row row = {};

  void visit(auto&& f) {
    run.visit(f);
    f("error", error);
    if (error) return;
    FOCUS_MEMBERS(f, train_tokens_per_second, train_peak_bytes, split, texts, tokenizer, context,
                  stride, documents, bytes);
    row.visit(f);
  }
};

/// One attention's answers at the distances of a bucket, or at all.
struct AnswersRow {
  RunColumns run = {};
  std::string questions = {};
  std::int64_t documents = 0;
  AttentionLabel attention = {};
  std::optional<std::int64_t> from = {}, to = {};  // without: all distances
  AnswerFigures figures = {};

  void visit(auto&& f) {
    run.visit(f);
    FOCUS_MEMBERS(f, questions, documents);
    attention.visit(f);
    FOCUS_MEMBERS(f, from, to);
    figures.visit(f);
  }
};

/// What a comparison came to, in the order of its runs.
struct ComparedRows {
  std::vector<TextRow> texts = {};
  std::vector<AnswersRow> recall = {};
};

ComparedRows compared_rows(const std::vector<RunOutcome>& outcomes);

/// A list of rows of one kind (struct_to_json) as CSV, and as JSON lines.
std::string rows_csv(const nlohmann::ordered_json& rows);
std::string rows_jsonl(const nlohmann::ordered_json& rows);

/// Replaces each number of a visit by f(number); NaN is an optional without a value.
template <class F>
struct EachNumber {
  F f;

  template <class T>
  void operator()(const auto&, T& member) {
    if constexpr (is_number<T>) {
      member = static_cast<T>(f(static_cast<double>(member)));
    } else if constexpr (requires {
                           requires is_number<typename T::value_type>;
                           member.has_value();
                         }) {
      const double value = f(member ? static_cast<double>(*member) : NAN);
      member.reset();
      if (!std::isnan(value)) member = static_cast<typename T::value_type>(value);
    }
  }

  template <class T>
  static constexpr bool is_number = std::is_same_v<T, double> || std::is_same_v<T, std::int64_t>;
};
template <class F>
EachNumber(F) -> EachNumber<F>;

/// Rows that differ in their seed, as one: `mean` has of each number that they visit the mean
/// (where all rows have it). What is not a number is the first row's.
template <class T>
struct OverSeeds {
  std::vector<T> rows;
  T mean;

  explicit OverSeeds(std::vector<T> of_seeds) : rows(std::move(of_seeds)), mean(rows[0]) {
    std::vector<double> sums;  // of the numbers of a visit
    for (T row : rows) {
      std::size_t i = 0;
      row.visit(EachNumber{[&](double number) {
        if (i == sums.size()) sums.push_back(0);
        sums[i++] += number;
        return number;
      }});
    }
    std::size_t i = 0;
    mean.visit(EachNumber{[&](double) { return sums[i++] / static_cast<double>(rows.size()); }});
  }
  /// A figure of each row.
  template <class F>
  std::vector<double> each(F&& figure) const {
    std::vector<double> values;
    for (const T& row : rows) values.push_back(static_cast<double>(figure(row)));
    return values;
  }
};

/// Deviation of figures over seeds, by n - 1; 0 of one.
double standard_deviation(const std::vector<double>& values);

/// Rows of the same key(row) as one each, in the order of the first.
template <class T, class Key>
std::vector<OverSeeds<T>> over_seeds(const std::vector<T>& rows, Key&& key) {
  std::vector<std::vector<T>> groups;
  for (const T& row : rows) {
    const auto found = std::ranges::find_if(
        groups, [&](const std::vector<T>& group) { return key(group[0]) == key(row); });
    (found != groups.end() ? *found : groups.emplace_back()).push_back(row);
  }
  return {groups.begin(), groups.end()};
}

/// The rows of texts, those of a run's seeds as one; failed runs are left out.
std::vector<OverSeeds<TextRow>> text_rows_over_seeds(const std::vector<TextRow>& rows);

/// The tables for a terminal.
std::string compare_table(const ComparedRows& rows);

/// The page; `planned`: how many runs there are to be. Curves are read from the metrics files of
/// `outcomes`.
std::string compare_page(const CompareConfig& config, std::size_t planned, const ComparedRows& rows,
                         const std::vector<RunOutcome>& outcomes);

/// Charts of one run: loss, and by layer what groups came to. `folder` is the run's. Throws
/// std::runtime_error if its metrics.jsonl cannot be read or holds no records.
void add_run(HtmlReport& report, const std::string& folder);

}  // namespace focus
