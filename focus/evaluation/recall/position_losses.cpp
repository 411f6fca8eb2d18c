#include "focus/evaluation/recall/position_losses.h"

namespace focus {
namespace {

/// The edges 1, 2, 4, 8, 16, 20, 24, 28, 32, 40, ... up to the first above `most`.
std::vector<Index> edges_up_to(Index most) {
  std::vector<Index> edges = {1};
  Index power = 1;
  while (edges.back() <= most) {
    if (edges.back() == 2 * power) power *= 2;
    edges.push_back(edges.back() + (power < 16 ? power : power / 4));
  }
  return edges;
}

}  // namespace

std::vector<PositionLoss> losses_by_position(const TokenLosses& losses) {
  if (losses.before.empty()) return {};
  const std::vector<Index> edges = edges_up_to(*std::ranges::max_element(losses.before));
  std::vector<PositionLoss> buckets;
  for (std::size_t i = 0; i + 1 < edges.size(); ++i)
    buckets.push_back({.from = edges[i], .to = edges[i + 1] - 1});
  for (std::size_t i = 0; i < losses.nats.size(); ++i) {
    const auto above = std::ranges::upper_bound(edges, losses.before[i]);
    PositionLoss& bucket = buckets[static_cast<std::size_t>(above - edges.begin() - 1)];
    ++bucket.tokens;
    bucket.nats += losses.nats[i];
  }
  std::erase_if(buckets, [](const PositionLoss& bucket) { return bucket.tokens == 0; });
  for (PositionLoss& bucket : buckets) bucket.nats /= static_cast<double>(bucket.tokens);
  return buckets;
}

}  // namespace focus
