#include "focus/evaluation/report/recall_figures.h"

namespace focus {
namespace {

AnswerFigures figures_of_answers(const RecallScore& score) {
  return {.answers = score.answers,
          .right = score.accuracy(),
          .standard_error = score.standard_error(),
          .tokens = score.tokens,
          .nats_per_token = score.nats / static_cast<double>(score.tokens)};
}

}  // namespace

std::vector<RecallFigures> recall_figures(std::span<const RecallRow> rows) {
  std::vector<RecallFigures> all;
  for (const RecallRow& row : rows) {
    RecallFigures& figures = all.emplace_back(RecallFigures{.attention = row.name,
                                                            .kind = row.kind,
                                                            .routing = row.routing,
                                                            .all = figures_of_answers(row.all)});
    for (const RecallBucket& bucket : row.buckets)
      figures.by_distance.push_back(
          {.from = bucket.from + 1, .to = bucket.to, .figures = figures_of_answers(bucket.score)});
  }
  return all;
}

}  // namespace focus
