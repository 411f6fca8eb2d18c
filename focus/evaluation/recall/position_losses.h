#pragma once

#include <vector>

#include "focus/evaluation/evaluation.h"

namespace focus {

/// Loss by the number of tokens before: 1, 2 to 3, 4 to 7 and so on, four buckets to each
/// doubling from 16 on. Buckets without a token are left out.
std::vector<PositionLoss> losses_by_position(const TokenLosses& losses);

}  // namespace focus
