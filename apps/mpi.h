#pragma once

#include <functional>
#include <memory>

#include "optim/ranks.h"

// Several processes that share a training, started by mpirun (docs/machines.md).
namespace focus {

/// How many processes the launcher has started, by what it leaves in the environment; 1 without
/// one.
int launched_processes();

/// The processes that mpirun has started, this one among them; a single one where it was not used.
/// Throws std::runtime_error where there are several and the program was built without MPI.
std::unique_ptr<Ranks> join_ranks();

/// Calls f. What it throws says from now on which process it was; the launcher ends the others once
/// this one has ended.
void run_as_one_of(const Ranks& ranks, const std::function<void()>& f);

}  // namespace focus
