#include "focus/evaluation/scores/tasks.h"

#include <algorithm>

#include "autograd/base/check.h"
#include "data/files/checksum.h"
#include "data/files/json_reader.h"
#include "focus/evaluation/scores/task_readers.h"

namespace focus {
namespace {

constexpr std::string_view kStripped = " \t\r\n\v\f";

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

std::filesystem::path find_file(const TaskKind& kind, const std::filesystem::path& data) {
  for (const std::filesystem::path& folder : {data / kind.folder, data})
    for (const std::string_view name : kind.files)
      if (std::filesystem::is_regular_file(folder / name)) return folder / name;
  fail("task {}: no {} in {} or its folder {}", kind.name, fmt::join(kind.files, ", "),
       shown_whole(data.string()), kind.folder);
}

}  // namespace

const std::vector<TaskKind>& task_kinds() {
  using By = TaskKind::Metric;
  static const std::vector<TaskKind> kinds = {
      {"hellaswag",
       "which ending continues a scene",
       By::normalised_choice,
       "hellaswag",
       {"hellaswag_val.jsonl", "validation.jsonl", "hellaswag.jsonl", "hellaswag_val_full.txt.bz2",
        "hellaswag_val_full.txt"},
       read_hellaswag},
      {"arc_easy",
       "grade-school science questions",
       By::normalised_choice,
       "arc_easy",
       {"ARC-Easy-Test.jsonl", "arc_easy.jsonl", "test.jsonl"},
       read_arc},
      {"piqa",
       "which of two ways to reach a goal works",
       By::normalised_choice,
       "piqa",
       {"valid.jsonl", "validation.jsonl", "piqa.jsonl"},
       read_piqa},
      {"lambada",
       "the last word of a passage (OpenAI's form)",
       By::last_word,
       "lambada",
       {"lambada_test.jsonl", "test.jsonl", "lambada.jsonl"},
       read_lambada},
      {"truthfulqa_mc1",
       "which answer is true and not a common misconception",
       By::choice,
       "truthfulqa",
       {"mc_task.json"},
       read_truthfulqa_mc1},
  };
  return kinds;
}

Task read_task(const std::string& name, const std::filesystem::path& data, Index limit) {
  const auto kind = std::ranges::find(task_kinds(), name, &TaskKind::name);
  if (kind == task_kinds().end()) {
    std::vector<std::string_view> names;
    for (const TaskKind& one : task_kinds()) names.push_back(one.name);
    fail("unknown task {}; there are {}", shown(name), fmt::join(names, ", "));
  }
  const std::filesystem::path file = find_file(*kind, data);
  Task task{&*kind, file.string(), {}};
  if (!std::filesystem::is_empty(file)) task.items = kind->read(file);
  if (task.items.empty()) fail("{}: has no items", task.file);
  if (limit > 0 && static_cast<Index>(task.items.size()) > limit)
    task.items.resize(static_cast<std::size_t>(limit));
  return task;
}

std::string fingerprint_of(const Task& task) {
  Checksum sum;
  const auto add = [&](const std::string& part) {  // its size before it: parts cannot run together
    sum.update(fmt::format("{}:{}", part.size(), part));
  };
  add(std::string(task.kind->name));
  for (const TaskItem& item : task.items) {
    add(item.context);
    for (std::size_t c = 0; c < item.choices.size(); ++c) {
      add(item.choices[c]);
      add(fmt::format("{}", item.lengths[c]));
    }
    add(fmt::format("{} of {}", item.right, item.choices.size()));
  }
  return sum.hex();
}

std::string without_wikihow_marks(std::string text) {
  const std::size_t begin = std::min(text.find_first_not_of(kStripped), text.size());
  text = text.substr(begin, text.find_last_not_of(kStripped) + 1 - begin);
  replace_all(text, " [title]", ". ");
  for (std::size_t open = 0; (open = text.find('[', open)) != std::string::npos;) {
    const std::size_t close = text.find(']', open);
    if (close == std::string::npos) break;
    if (text.find('\n', open) < close)
      ++open;
    else
      text.erase(open, close + 1 - open);
  }
  replace_all(text, "  ", " ");
  return text;
}

std::string capitalised(std::string text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i == 0 && text[i] >= 'a' && text[i] <= 'z')
      text[i] = static_cast<char>(text[i] - 'a' + 'A');
    if (i > 0 && text[i] >= 'A' && text[i] <= 'Z') text[i] = static_cast<char>(text[i] - 'A' + 'a');
  }
  return text;
}

}  // namespace focus
