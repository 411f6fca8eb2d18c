#pragma once

#include <cstdint>

#include "focus/method/grouping/routing.h"

// Ways to place the centroids of a layer other than by their gradient, from the routing vectors
// h W_g of a batch [tokens, routing_dim].
namespace focus {

/// Moves each centroid towards the mean of the routing vectors of the tokens whose highest
/// assignment it is: (1 - rate) c + rate mean (the moving average of VQ-VAE, van den Oord et al.
/// 2017, arXiv 1711.00937, appendix A.1, of means rather than of sums). One without tokens stays.
void average_centroids(FocusLayer& layer, const Routing& routing, double rate);

/// Sets the centroids by spherical k-means of a batch (Dhillon and Modha 2001: clusters by the
/// angle alone, as equally long centroids divide the tokens), started by k-means++ (Arthur and
/// Vassilvitskii 2007) with this seed and run until nothing changes, at most 25 rounds. Each has
/// the mean length of those before, so that the assignments stay about as sharp. The carried
/// potentials start again from the same batch.
void recluster(FocusLayer& layer, const Routing& routing, const TokenSettings& settings,
               std::uint64_t seed);

}  // namespace focus
