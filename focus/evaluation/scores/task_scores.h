#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "focus/evaluation/estimate.h"
#include "focus/evaluation/scores/encoding.h"
#include "focus/evaluation/scores/pair_scores.h"
#include "focus/evaluation/scores/tasks.h"

namespace focus {

/// What is asked, for a command's options.
struct TaskSettings {
  std::vector<std::string> tasks = {};
  std::string task_data = {};
  Index limit = 0;
  TextStart start = TextStart::tokenizer;
  std::string prefix = {};
  bool chat = false;

  void visit(auto&& f) {
    f("tasks", tasks,
      "benchmarks, prompts and scores as in the lm-evaluation-harness: hellaswag, arc_easy, piqa, "
      "lambada, truthfulqa_mc1");
    f("task_data", task_data, "folder of the task files, or of one folder per task");
    f("limit", limit, "use only the first N items of each task; 0: all", {0, 1e9});
    f("start", start,
      "special tokens before a prompt: those that the tokenizer's files specify, none, or the id "
      "that the model has before every document");
    f("prefix", prefix,
      "text file put before every prompt, with an empty line between: solved examples, or "
      "unrelated text");
    f("chat", chat,
      "make each prompt the user's message in the model's chat template, as the harness does with "
      "--apply_chat_template");
  }
};

/// A task's items as the settings have them: `limit`, and `prefix` before every context. Throws
/// std::runtime_error, one line, as read_task() of a folder does, and where `prefix` cannot be
/// read.
Task read_task(const std::string& name, const TaskSettings& settings);
/// Makes each context the user's message in the model's chat template, up to where the assistant
/// answers; the space before a choice goes. The template writes all special tokens: nothing else
/// starts such a prompt. Throws std::runtime_error, one line, where the model has no template.
void apply_chat_template(Task& task, const LoadedModel& model);

/// What one attention says of one item.
struct ItemScore {
  std::vector<double> log_probs;  // of each choice
  bool is_greedy = false;         // of a single one
};
/// The choice of largest log-probability, or of largest by character where lengths are given; of a
/// tie the first.
std::size_t chosen(const ItemScore& score, std::span<const Index> lengths = {});

/// A row beside the dense model on the same items: what moves long before an accuracy does.
struct TaskFidelity {
  Estimate same_choice;        // share of items with the dense model's choice
  Estimate log_prob_distance;  // mean absolute difference of the choices' log-probabilities
  Estimate kl;                 // KL(dense || row) of the next token, mean over the choices' tokens
  Estimate accuracy;           // paired differences, row - dense
  std::optional<Estimate> accuracy_norm = {};
  Estimate log_prob_of_right;

  void visit(auto&& f) {
    f("same_choice", same_choice);
    f("log_prob_distance", log_prob_distance);
    f("kl", kl);
    f("log_prob_of_right", log_prob_of_right);
    f("acc", accuracy);
    f.maybe("acc_norm", accuracy_norm);
  }
};

struct TaskRow {
  std::string kind, name, routing;  // as in EvalRow
  TouchedPairs touches = {};
  double pairs_touched = 0;  // share of the causal pairs
  double items_inside = 0;   // share of items no pair of which does
  Estimate accuracy;
  std::optional<Estimate> accuracy_norm = {}, perplexity = {};
  std::optional<TaskFidelity> fidelity = {};

  void visit(auto&& f) {
    f("attention", name);
    f("kind", kind);
    f("routing", routing);
    f("acc", accuracy);
    f.maybe("acc_norm", accuracy_norm);
    f.maybe("perplexity", perplexity);
    f("local_window", touches.window);
    f("pairs_touched", pairs_touched);
    f("items_inside", items_inside);
    f.maybe("against_dense", fidelity);
  }
};

struct TaskTable {
  std::string task, file;
  Index items = 0, cut = 0;  // `cut`: items whose context was too long and lost its beginning
  ScoringWork work = {};
  std::vector<TaskRow> rows = {};

  void visit(auto&& f) {
    f("task", task);
    f("file", file);
    f("items", items);
    f("cut", cut);
    f("rows", rows);
  }
};

/// One task with every attention. `reference`, where given, is the model whose dense attention is
/// compared with; else it is the model's own. Throws std::runtime_error where an item cannot be
/// scored, before any is computed, and where the reference has another tokenizer. `ranks`: as in
/// EvalPass; they share the items.
TaskTable evaluate_task(LoadedModel& model, std::span<const AttentionSpec> attentions,
                        const Task& task, TextStart start, LoadedModel* reference = nullptr,
                        const ShareDone& progress = {}, Ranks& ranks = one_process());

/// For a terminal: a table, and a sentence where items lie inside a local window.
std::string format_task(const TaskTable& table);

}  // namespace focus
