#include "optim/ranks.h"

#include <cstring>

#include "autograd/base/check.h"

namespace focus {

Ranks& one_process() {
  static Ranks alone;
  return alone;
}

std::string bytes_of(const std::vector<double>& numbers) {
  std::string bytes(numbers.size() * sizeof(double), '\0');
  if (!numbers.empty()) std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

std::vector<double> numbers_of(const std::string& bytes) {
  std::vector<double> numbers(bytes.size() / sizeof(double));
  if (!numbers.empty()) std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(double));
  return numbers;
}

std::vector<std::vector<double>> gather_parts(Ranks& ranks, int parts,
                                              const std::vector<std::vector<double>>& mine) {
  if (ranks.count() == 1) return mine;
  // Each list after its length.
  std::vector<double> flat;
  for (const std::vector<double>& list : mine) {
    flat.push_back(static_cast<double>(list.size()));
    flat.insert(flat.end(), list.begin(), list.end());
  }
  std::vector<std::vector<double>> of_rank;
  for (const std::string& bytes : ranks.gather(bytes_of(flat)))
    of_rank.push_back(numbers_of(bytes));
  std::vector<std::size_t> next(of_rank.size(), 0);
  std::vector<std::vector<double>> all;
  for (int part = 0; part < parts; ++part) {
    const auto rank = static_cast<std::size_t>(ranks.rank_of(part));
    const std::vector<double>& from = of_rank[rank];
    check(next[rank] < from.size(), "ranks: process {} has no share of part {}", rank, part);
    const auto begin = from.begin() + static_cast<std::ptrdiff_t>(next[rank]) + 1;
    const auto size = static_cast<std::ptrdiff_t>(from[next[rank]]);
    all.emplace_back(begin, begin + size);
    next[rank] += static_cast<std::size_t>(size) + 1;
  }
  return all;
}

}  // namespace focus
