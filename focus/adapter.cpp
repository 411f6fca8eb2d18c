#include "focus/adapter.h"

#include <cmath>

namespace focus {

void AttentionCounts::append_to(std::vector<double>& list) const {
  const auto append_pairs = [&](const PairCounts& of) {
    for (const std::int64_t count : {of.all, of.distant, of.attended, of.selection_cost})
      list.push_back(static_cast<double>(count));
  };
  append_pairs(pairs);
  list.push_back(static_cast<double>(layers.size()));
  for (const GroupStatistics& layer : layers) {
    append_pairs(layer.pairs);
    layer.append_to(list);
  }
}

std::size_t AttentionCounts::add(std::span<const double> list) {
  std::size_t at = 0;
  const auto next = [&] { return static_cast<std::int64_t>(list[at++]); };
  const auto add_pairs = [&](PairCounts& to) {
    for (std::int64_t* const count : {&to.all, &to.distant, &to.attended, &to.selection_cost})
      *count += next();
  };
  add_pairs(pairs);
  layers.resize(static_cast<std::size_t>(next()));
  for (GroupStatistics& layer : layers) {
    add_pairs(layer.pairs);
    at += layer.add(list.subspan(at));
  }
  return at;
}

std::int64_t pairs_worth(double multiply_adds, const MechanismInputs& in) {
  return std::llround(multiply_adds / static_cast<double>(2 * in.q.dim(2) * in.q.dim(3)));
}

}  // namespace focus
