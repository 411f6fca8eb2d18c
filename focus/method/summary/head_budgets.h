#pragma once

#include <string>
#include <vector>

#include "autograd/tensor.h"

namespace focus {

/// How many groups each query head of each layer selects, from the heads' needs (their relative
/// squared errors where all select alike): as many as are in proportion to need^0.35, rounded, at
/// least 1 and at most `most`, so that their mean over all heads is `mean` or just below. All 0 for
/// a mean of 0, all `most` for a mean of that or more.  needs: of each layer [heads]. Throws
/// std::invalid_argument for a need that is negative or no number.
std::vector<std::vector<Index>> head_budgets(const std::vector<Tensor>& needs, Index mean,
                                             Index most);
/// "1 to 38 of 128 groups, 7.9 in the mean", and how many heads select all, where any does.
std::string budgets_text(const std::vector<Tensor>& needs, Index mean, Index most);

}  // namespace focus
