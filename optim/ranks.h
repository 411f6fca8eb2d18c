#pragma once

#include <string>
#include <vector>

#include "autograd/tensor.h"

namespace focus {

/// The processes that train or evaluate one model together, numbered from 0. Each holds all of the
/// model; the parts of what is to be done (micro-batches of a step, windows of a text) are divided
/// among them. This one is a single process; apps/mpi.h has those of MPI.
///
/// Every process calls the same functions in the same order.
class Ranks {
 public:
  Ranks() = default;
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  virtual ~Ranks() = default;

  virtual int rank() const { return 0; }
  virtual int count() const { return 1; }
  bool first() const { return rank() == 0; }

  /// What each process gives, in the order of the processes, to all of them.
  virtual std::vector<std::string> gather(const std::string& mine) { return {mine}; }
  /// to[q] goes to process q; returns what each of them had for this one, in their order.
  virtual std::vector<std::vector<Real>> exchange(std::vector<std::vector<Real>> to) { return to; }
  /// Returns once all processes have come here.
  virtual void wait() { gather({}); }

  /// The process that computes a part.
  int rank_of(int part) const { return part % count(); }
  bool owns(int part) const { return rank_of(part) == rank(); }
};

/// A process that shares with nobody.
Ranks& one_process();

/// Numbers as the bytes that gather() takes, and back.
std::string bytes_of(const std::vector<double>& numbers);
std::vector<double> numbers_of(const std::string& bytes);

/// One list of numbers of each of `parts` parts, in the order of parts. `mine` has those of the
/// parts that this process owns, in their order.
std::vector<std::vector<double>> gather_parts(Ranks& ranks, int parts,
                                              const std::vector<std::vector<double>>& mine);

}  // namespace focus
