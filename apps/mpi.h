#pragma once

#include <functional>
#include <memory>

#include "optim/ranks.h"

// Processes of one job, started by mpirun (docs/machines.md).
namespace focus::app {

/// The number of processes, from the launcher's environment variables; 1 without a launcher.
int launched_processes();
/// The rank of this process, from the same.
int launched_rank();

/// The processes of mpirun; a single one without it. Throws std::runtime_error if there are several
/// and the program was built without MPI.
std::unique_ptr<Ranks> join_ranks();

/// Calls f and adds the rank to its errors; the launcher ends the other processes after this one.
void run_as_one_of(const Ranks& ranks, const std::function<void()>& f);

/// Gives the first process the time to print its error and to end, after which the launcher ends
/// the others.
void wait_for_rank_zero();

/// From now on only the first process prints results and progress; every process prints its errors.
void only_rank_zero_prints(const Ranks& ranks);

/// Calls f in the first process, then in the others, which read what it cached.
template <class F>
auto first_before_others(Ranks& ranks, F&& f) {
  if (!ranks.first()) ranks.wait();
  auto made = f();
  if (ranks.first()) ranks.wait();
  return made;
}

}  // namespace focus::app
