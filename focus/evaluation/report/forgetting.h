#pragma once

#include <string>
#include <vector>

#include "focus/evaluation/report/compare_report.h"
#include "focus/evaluation/report/html_report.h"

namespace focus {

/// What a run has learnt of the target and kept of the source, in nats per token: the logarithms of
/// the mean perplexities.
struct ForgettingPoint {
  std::string run, attention;
  double target = 0, source = 0;
  bool is_base = false;  // a retrofit's dense attention: the base as it was
};

/// One for each run and causal attention that has both splits.
std::vector<ForgettingPoint> forgetting_points(const std::vector<CompareGroup>& groups,
                                               const std::string& target,
                                               const std::string& source);

/// The plane of target loss against source loss, and its table; nothing where there are no points.
void add_forgetting(HtmlReport& page, const std::vector<CompareGroup>& groups,
                    const std::string& target, const std::string& source);

}  // namespace focus
