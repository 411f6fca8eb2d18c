#include "autograd/gemm/number_format.h"

#include <algorithm>
#include <array>

#include "autograd/base/check.h"

namespace focus {
namespace {

struct Row {
  NumberFormat format;
  const char* name;
  Index numbers;  // of a block
  std::size_t bytes;
};

using enum NumberFormat;
constexpr std::array<Row, 17> kRows = {{
    {f32, "f32", 1, 4},
    {f64, "f64", 1, 8},
    {bf16, "bf16", 1, 2},
    {f16, "f16", 1, 2},
    {q8_0, "q8_0", 32, 34},
    {q4_0, "q4_0", 32, 18},
    {q4_1, "q4_1", 32, 20},
    {q5_0, "q5_0", 32, 22},
    {q5_1, "q5_1", 32, 24},
    {q2_k, "q2_k", 256, 84},
    {q3_k, "q3_k", 256, 110},
    {q4_k, "q4_k", 256, 144},
    {q5_k, "q5_k", 256, 176},
    {q6_k, "q6_k", 256, 210},
    {iq4_nl, "iq4_nl", 32, 18},
    {iq4_xs, "iq4_xs", 256, 136},
    {other, "other", 1, 0},
}};

constexpr bool in_order() {
  for (std::size_t i = 0; i < kRows.size(); ++i)
    if (static_cast<std::size_t>(kRows[i].format) != i) return false;
  return true;
}
static_assert(in_order(), "a format's row is found by its number");

const Row& row_of(NumberFormat format) { return kRows.at(static_cast<std::size_t>(format)); }

}  // namespace

const char* name_of(NumberFormat format) { return row_of(format).name; }

NumberFormat format_named(std::string_view name) {
  const auto row = std::ranges::find(kRows, name, &Row::name);
  return row == kRows.end() ? other : row->format;
}

Index block_numbers(NumberFormat format) { return row_of(format).numbers; }

std::size_t bytes_of(NumberFormat format, Index count) {
  const Row& row = row_of(format);
  check(count % row.numbers == 0, "{} values do not fill whole {} blocks of {}", count, row.name,
        row.numbers);
  return static_cast<std::size_t>(count / row.numbers) * row.bytes;
}

std::size_t alignment_of(NumberFormat format) {
  return in_blocks(format) || format == other ? 1 : row_of(format).bytes;
}

}  // namespace focus
