#pragma once

#include <vector>

#include "optim/adamw.h"
#include "optim/ranks.h"

namespace focus {

/// The sum of a step's gradients over its parts, in the order of the parts: the bits do not depend
/// on the number of processes.
class GradientSum {
 public:
  /// `parameters` collect the gradients; they stay as they are until finish().
  GradientSum(const NamedParameters& parameters, int parts, Ranks& ranks);

  /// Moves the gradients of the next part that this process owns out of the parameters.
  void add();
  /// Sets the sums as the parameters' gradients; those without one in any part have none.
  void finish();

 private:
  std::vector<Tensor> exchanged_sums() const;

  const NamedParameters& parameters_;
  const int parts_;
  Ranks& ranks_;
  std::vector<Tensor> sums_;                // of one process, by parameter
  std::vector<std::vector<Tensor>> owned_;  // of several, by own part and parameter
};

}  // namespace focus
