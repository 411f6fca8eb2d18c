#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/tensor.h"

// Benchmarks as the lm-evaluation-harness asks them, without examples before the question.
namespace focus {

/// A context and what may follow it. Of several choices one is right; a single one is to be what
/// the model would write.
struct TaskItem {
  std::string context;
  std::vector<std::string> choices = {};  // " yes": as they stand behind the context
  std::vector<Index> lengths =
      {};  // characters of each without the space: what acc_norm divides by
  std::size_t right = 0;
  std::string where = {};  // "piqa/valid.jsonl:3", for messages
};

struct TaskKind {
  enum class Metric {
    choice,             // acc: the choice of largest log-probability is right
    normalised_choice,  // and acc_norm: of largest log-probability by character
    last_word           // acc: the model writes it, and the perplexity of it
  };

  std::string_view name;
  std::string_view help;
  Metric metric;
  std::string_view folder;              // where files lie, beside the data folder itself
  std::vector<std::string_view> files;  // by these names, the first that is there
  std::vector<TaskItem> (*read)(const std::filesystem::path& file);
};
const std::vector<TaskKind>& task_kinds();

struct Task {
  const TaskKind* kind;
  std::string file;
  std::vector<TaskItem> items;
};
/// A task's items from a folder of benchmarks, the first `limit` of them; 0: all. Throws
/// std::runtime_error, one line, where there is no such task or no file of it, where an item lacks
/// what it needs, and where there is none.
Task read_task(const std::string& name, const std::filesystem::path& data, Index limit);
/// Of all that is asked and which answers are right, whatever file it came from.
std::string fingerprint_of(const Task& task);

/// HellaSwag's texts without the marks that WikiHow's pages left in them.
std::string without_wikihow_marks(std::string text);
/// As Python's str.capitalize(), of ASCII letters.
std::string capitalised(std::string text);

}  // namespace focus
