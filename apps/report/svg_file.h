#pragma once

#include <string>

#include "apps/report/html_report.h"

namespace focus {

/// A line chart as an SVG file of its own, for a README: title and legend inside, nothing from
/// outside, light or dark as the reader's system is.
std::string svg_file(const LineChart& chart);

}  // namespace focus
