#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "focus/evaluation/recall/far_tokens.h"
#include "focus/evaluation/report/evaluation_row.h"
#include "focus/evaluation/report/table.h"

// Rows of several computes, one lot of attentions after the other; all are compared with the first.
namespace focus {

/// Sets against_precision in the rows of all precisions but the first; `losses` are those of the
/// rows.
void compare_precisions(std::span<const RowLosses> losses, std::size_t precisions,
                        std::vector<EvaluationRow>& rows);

/// Of every attention the perplexity in each compute, and what that costs against the first.
Table precision_table(std::size_t precisions, const std::vector<EvaluationRow>& rows);

}  // namespace focus
