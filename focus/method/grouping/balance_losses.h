#pragma once

#include "focus/method/grouping/routing.h"

// Terms of the training loss that pull the groups of one layer towards equal size.
namespace focus {

/// The loss of the Switch Transformer (Fedus et al. 2021, arXiv 2101.03961, eq. 4 to 6) without its
/// weight: K sum_k f_k p_k, f_k the share of the tokens whose highest assignment is group k, p_k
/// the mean of g_k over the batch. 1 where both are equal, K where one group has all. No gradient
/// flows through f. [1]
Variable balance_loss(const Routing& routing);

/// How far an entropy lies below that of equal assignments, in nats: log K - H [1], >= 0.
/// mean: H of the mean of g over the batch, the term of Krause et al. 2010 (NIPS, regularized
/// information maximization) that keeps group_ids in use; token: the mean over tokens of H(g_i),
/// the confidence penalty of Pereyra et al. 2017 (arXiv 1701.06548). g [batch, seq_len, num_groups]
Variable entropy_loss(const Variable& g, EntropyOf of);

/// The terms that `settings` asks for, with their weights; undefined without any. [1]
Variable auxiliary_loss(const Routing& routing, const AblationSettings& settings);

}  // namespace focus
