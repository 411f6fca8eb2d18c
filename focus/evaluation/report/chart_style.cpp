#include "focus/evaluation/report/charts.h"

namespace focus {
namespace {

// Eight hues that stay apart for readers who do not see red and green as others do, after the set
// of Okabe and Ito; lines also differ by their dashes. Dark pages get lighter ones.
constexpr std::string_view kChartStyle = R"(
:root {
  color-scheme: light dark;
  --page: #ffffff; --ink: #1b1f24; --soft: #5b6570; --rule: #d9dee3; --grid: #e9ecef;
  --c0: #0072b2; --c1: #d55e00; --c2: #00856a; --c3: #b8578f;
  --c4: #b97a00; --c5: #3a9bd6; --c6: #6a51a3; --c7: #4d4d4d;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #15181c; --ink: #e8eaed; --soft: #a2abb5; --rule: #363c44; --grid: #272c32;
    --c0: #58a6e8; --c1: #ff8f4d; --c2: #3ecfa5; --c3: #e79ac8;
    --c4: #f0b429; --c5: #8fd0f7; --c6: #b3a0e6; --c7: #c4c9cf;
  }
}
svg text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: var(--soft); }
svg text.label { fill: var(--ink); }
svg text.on { fill: var(--page); }
.grid { stroke: var(--grid); } .axis { stroke: var(--soft); }
.reference { stroke: var(--soft); stroke-dasharray: 2 3; }
.line { fill: none; stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round; }
.halo { paint-order: stroke; stroke: var(--page); stroke-width: 4px; stroke-linejoin: round; }
.s0 { stroke: var(--c0); } .s1 { stroke: var(--c1); stroke-dasharray: 7 3; }
.s2 { stroke: var(--c2); stroke-dasharray: 2 3; }
.s3 { stroke: var(--c3); stroke-dasharray: 9 3 2 3; }
.s4 { stroke: var(--c4); } .s5 { stroke: var(--c5); stroke-dasharray: 7 3; }
.s6 { stroke: var(--c6); stroke-dasharray: 2 3; }
.s7 { stroke: var(--c7); stroke-dasharray: 9 3 2 3; }
.pale { opacity: .28; stroke-width: 1; stroke-dasharray: none; }
.f0 { fill: var(--c0); } .f1 { fill: var(--c1); } .f2 { fill: var(--c2); } .f3 { fill: var(--c3); }
.f4 { fill: var(--c4); } .f5 { fill: var(--c5); } .f6 { fill: var(--c6); } .f7 { fill: var(--c7); }
.dot { stroke: var(--page); stroke-width: 1.5; stroke-dasharray: none; }
)";

}  // namespace

std::string_view chart_style() { return kChartStyle; }

}  // namespace focus
