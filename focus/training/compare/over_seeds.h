#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <type_traits>
#include <vector>

namespace focus {

/// Replaces each number of a visit by f(number); NaN is an optional without a value.
template <class F>
struct EachNumber {
  F f;

  template <class T>
  void operator()(const auto&, T& member) {
    if constexpr (is_number<T>) {
      member = static_cast<T>(f(static_cast<double>(member)));
    } else if constexpr (requires {
                           requires is_number<typename T::value_type>;
                           member.has_value();
                         }) {
      const double value = f(member ? static_cast<double>(*member) : NAN);
      member.reset();
      if (!std::isnan(value)) member = static_cast<typename T::value_type>(value);
    }
  }

  template <class T>
  static constexpr bool is_number = std::is_same_v<T, double> || std::is_same_v<T, std::int64_t>;
};
template <class F>
EachNumber(F) -> EachNumber<F>;

/// Rows that differ in their seed, as one: of each number that they visit the mean over the seeds
/// (where all rows have it), deviation, least and most. What is not a number is the first row's.
template <class T>
struct OverSeeds {
  std::size_t seeds = 0;
  T mean, deviation, least, most;

  explicit OverSeeds(const std::vector<T>& rows)
      : seeds(rows.size()), mean(rows[0]), deviation(rows[0]), least(rows[0]), most(rows[0]) {
    std::vector<std::vector<double>> numbers;  // of the visit, [numbers][rows]
    for (T row : rows) {
      std::size_t i = 0;
      row.visit(EachNumber{[&](double number) {
        if (i == numbers.size()) numbers.emplace_back();
        numbers[i++].push_back(number);
        return number;
      }});
    }
    const auto set = [&](T& row, auto&& of) {
      std::size_t i = 0;
      row.visit(EachNumber{[&](double) { return of(numbers[i++]); }});
    };
    using Values = std::vector<double>;
    const auto mean_of = [](const Values& values) {
      return std::accumulate(values.begin(), values.end(), 0.0) /
             static_cast<double>(values.size());
    };
    set(mean, mean_of);
    set(deviation, [&](const Values& values) {  // by n - 1; 0 of one seed
      double squares = 0;
      for (const double value : values) squares += std::pow(value - mean_of(values), 2);
      const auto n = static_cast<double>(values.size());
      return n > 1 ? std::sqrt(squares / (n - 1)) : 0;
    });
    set(least, [](const Values& values) { return std::ranges::min(values); });
    set(most, [](const Values& values) { return std::ranges::max(values); });
  }
};

/// Rows of the same key(row) as one each, in the order of the first.
template <class T, class Key>
std::vector<OverSeeds<T>> over_seeds(const std::vector<T>& rows, Key&& key) {
  std::vector<std::vector<T>> groups;
  for (const T& row : rows) {
    const auto found = std::ranges::find_if(
        groups, [&](const std::vector<T>& group) { return key(group[0]) == key(row); });
    (found != groups.end() ? *found : groups.emplace_back()).push_back(row);
  }
  return {groups.begin(), groups.end()};
}

}  // namespace focus
