#pragma once

#include <filesystem>
#include <vector>

#include "focus/evaluation/scores/tasks.h"

// One reader a benchmark: of its publisher's form, of Hugging Face's, and of the others in which it
// is passed on.
namespace focus {

std::vector<TaskItem> read_hellaswag(const std::filesystem::path& file);
std::vector<TaskItem> read_arc(const std::filesystem::path& file);
std::vector<TaskItem> read_piqa(const std::filesystem::path& file);
std::vector<TaskItem> read_lambada(const std::filesystem::path& file);
std::vector<TaskItem> read_truthfulqa_mc1(const std::filesystem::path& file);

}  // namespace focus
