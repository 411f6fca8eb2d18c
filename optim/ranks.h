#pragma once

#include <string>
#include <vector>

#include "autograd/tensor.h"

namespace focus {

/// The processes that train or evaluate one model together, numbered from 0. Each holds the whole
/// model; the parts of the work (micro-batches of a step, windows of a text) are divided among
/// them. All call the same functions in the same order. This one is a single process; apps/mpi.h
/// has MPI's.
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

/// One list of numbers for each of `parts` parts, in their order. `mine`: this process's.
std::vector<std::vector<double>> gather_parts(Ranks& ranks, int parts,
                                              const std::vector<std::vector<double>>& mine);

}  // namespace focus
