#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "optim/ranks.h"

// Several processes that share one job, started by mpirun (docs/machines.md).
namespace focus::app {

/// How many processes the launcher has started, by what it leaves in the environment; 1 without
/// one.
int launched_processes();
/// Which of them this one is, from 0, by the same.
int launched_rank();
/// Whether the launcher has put this variable, such as "OMPI_COMM_WORLD_SIZE", into the
/// environment for the process that it has started: what that one starts must not inherit it.
bool is_of_launcher(std::string_view variable);

/// The processes that mpirun has started, this one among them; a single one where it was not used.
/// Throws std::runtime_error where there are several and the program was built without MPI.
std::unique_ptr<Ranks> join_ranks();

/// Calls f. What it throws says from now on which process it was; the launcher ends the others once
/// this one has ended.
void run_as_one_of(const Ranks& ranks, const std::function<void()>& f);

/// Leaves the first process the time to tell what is wrong and to end: the launcher ends the others
/// then.
void wait_for_rank_zero();

/// From now on only the first process prints on stdout and tells how far it is; errors are told by
/// each.
void only_rank_zero_prints(const Ranks& ranks);

/// Calls f in the first process, then in the others: what it leaves in a cache they all read.
template <class F>
auto first_before_others(Ranks& ranks, F&& f) {
  if (!ranks.first()) ranks.wait();
  auto made = f();
  if (ranks.first()) ranks.wait();
  return made;
}

}  // namespace focus::app
