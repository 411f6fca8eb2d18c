#pragma once

#include <string>
#include <vector>

#include "focus/evaluation/report/charts.h"
#include "focus/evaluation/report/table.h"
#include "focus/speed/attention_speed.h"

namespace focus {

/// What the speed of attention came to over some lengths.
class SpeedReport {
 public:
  SpeedReport(const AttentionSpeedOptions& options, const std::vector<AttentionSpeed>& rows);

  /// For a terminal.
  std::string text() const;
  LineChart chart() const;
  /// One HTML page.
  std::string page() const;

 private:
  Table times() const;
  Table speedups() const;
  Table phases() const;

  const AttentionSpeedOptions& options_;
  const std::vector<AttentionSpeed>& rows_;
  const std::string setting_, memory_;
};

}  // namespace focus
