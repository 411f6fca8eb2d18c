#pragma once

#include <string>
#include <vector>

#include "focus/evaluation/statistics/groups_report.h"

// Groups of other adapters, models and checkpoints in the tokens of a report.
namespace focus {

/// What is loaded where another adapter is put onto a base.
struct BasePlace {
  std::string base, tokenizer;
  Precision precision = Precision::float32;
};

/// Refuses, with one line, what has no groups for `model`'s layers, and an adapter of another base;
/// runs nothing. `path`: an adapter, a model, or a checkpoint of one of these.
void check_other_groups(const LoadedModel& model, const std::string& path);

/// The groups of an adapter on that base, or of a model, in the same tokens. Throws
/// std::runtime_error, one line, as check_other_groups() does, and for another tokenizer.
std::vector<GroupAssignments> other_groupings(const BasePlace& place, const std::string& path,
                                              const GroupsReport& report,
                                              const CollectProgress& progress = {});

/// Checkpoints in their order: a run's folder means all its checkpoints. Throws where there is
/// just one, or none of what is named.
std::vector<std::string> expand_checkpoints(const std::vector<std::string>& paths);

}  // namespace focus
