#pragma once

#include <vector>

#include "optim/adamw.h"
#include "optim/ranks.h"

namespace focus {

/// The sum of a step's gradients over its parts, added in the order of the parts whichever process
/// has computed them: the bits do not depend on how many processes there are.
class GradientSum {
 public:
  /// `parameters` collect the gradients; they stay as they are until finish().
  GradientSum(const NamedParameters& parameters, int parts, Ranks& ranks);

  /// Takes over the gradients of the next part that this process owns, and leaves the parameters
  /// without any.
  void add();
  /// Leaves the sums as the parameters' gradients. A parameter that no part had one for has none.
  void finish();

 private:
  void finish_alone();
  void finish_together();

  const NamedParameters& parameters_;
  const int parts_;
  Ranks& ranks_;
  std::vector<Tensor> sums_;                // alone: one a parameter
  std::vector<std::vector<Tensor>> owned_;  // together: of each own part, one a parameter
};

}  // namespace focus
