#include "focus/evaluation/scores/task_scores.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "autograd/base/check.h"
#include "data/text/text.h"
#include "focus/models/example_format.h"

namespace focus {

Task read_task(const std::string& name, const TaskSettings& settings) {
  Task task = read_task(name, settings.task_data, settings.limit);
  if (settings.prefix.empty()) return task;
  const std::string prefix = read_prompt_file(settings.prefix) + "\n\n";
  for (TaskItem& item : task.items) item.context.insert(0, prefix);
  return task;
}

void apply_chat_template(Task& task, const LoadedModel& model) {
  const ExampleFormat format = example_format(model, {});
  for (TaskItem& item : task.items) {
    auto messages = nlohmann::ordered_json::array();
    messages.push_back({{"role", "user"}, {"content", item.context}});
    item.context = format.chat(messages, true);
    if (task.kind->metric == TaskKind::Metric::last_word) continue;
    for (std::string& choice : item.choices)
      if (choice.starts_with(' ')) choice.erase(0, 1);
  }
}

namespace {

using Metric = TaskKind::Metric;

/// Items that are scored together: what dense attention says of them is held as long.
constexpr std::size_t kBlock = 32;

/// The tokens of some items, one pair a choice.
struct EncodedItems {
  std::vector<TokenPair> pairs;
  std::vector<std::size_t> first;  // of each item's pairs; one more at the end
  Index cut = 0;
};

EncodedItems encode_items(const RequestEncoder& encoder, const std::vector<TaskItem>& items) {
  EncodedItems all;
  for (const TaskItem& item : items) {
    all.first.push_back(all.pairs.size());
    Index cut = 0;
    for (const std::string& choice : item.choices) {
      all.pairs.push_back(encoder.pair(item.context, choice, item.where));
      cut += cut_left(all.pairs.back(), encoder.max_length());
    }
    all.cut += cut > 0 ? 1 : 0;
  }
  all.first.push_back(all.pairs.size());
  return all;
}

/// What a row is made from, a number for each item.
struct Sample {
  std::vector<double> accuracy, accuracy_norm, right;
  std::vector<double> same_choice, distance, kl, accuracy_gain, norm_gain, right_gain;

  void visit(auto&& f) {
    for (std::vector<double>* const list :
         {&accuracy, &accuracy_norm, &right, &same_choice, &distance, &kl, &accuracy_gain,
          &norm_gain, &right_gain})
      f(*list);
  }
};

/// What every attention made of some items; as numbers it goes from process to process.
struct BlockResult {
  std::vector<Sample> samples;  // of each attention
  ScoringWork work = {};

  std::vector<double> numbers() {
    std::vector<double> all = {static_cast<double>(work.tokens),
                               static_cast<double>(work.computed)};
    for (Sample& sample : samples)
      sample.visit([&](std::vector<double>& list) {
        all.push_back(static_cast<double>(list.size()));
        all.insert(all.end(), list.begin(), list.end());
      });
    return all;
  }
  void add(std::span<const double> all) {
    work += ScoringWork{.tokens = static_cast<std::int64_t>(all[0]),
                        .computed = static_cast<std::int64_t>(all[1])};
    all = all.subspan(2);
    for (Sample& sample : samples)
      sample.visit([&](std::vector<double>& list) {
        const std::span<const double> more = all.subspan(1, static_cast<std::size_t>(all[0]));
        list.insert(list.end(), more.begin(), more.end());
        all = all.subspan(1 + more.size());
      });
  }
};

double mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

struct Right {
  double accuracy, accuracy_norm;
};
Right judge(const ItemScore& score, const TaskItem& item, Metric metric) {
  if (metric == Metric::last_word) return {score.is_greedy ? 1.0 : 0.0, 0};
  return {chosen(score) == item.right ? 1.0 : 0.0,
          chosen(score, item.lengths) == item.right ? 1.0 : 0.0};
}

class TaskEvaluation {
 public:
  TaskEvaluation(LoadedModel& model, std::span<const AttentionSpec> attentions, const Task& task,
                 TextStart start, LoadedModel* reference, Ranks& ranks)
      : model_(model),
        ranks_(ranks),
        attentions_(attentions),
        task_(task),
        reference_(reference == nullptr ? model : *reference),
        own_reference_(reference == nullptr),
        encoded_(encode_items(RequestEncoder(model, start), task.items)),
        compares_(!std::ranges::all_of(
            attentions, [&](const AttentionSpec& spec) { return is_reference(spec); })),
        result_{.samples = std::vector<Sample>(attentions.size())} {
    if (!own_reference_) require_comparable(*reference, model);
  }

  TaskTable run(const ShareDone& progress) {
    TaskTable table{.task = std::string(task_.kind->name),
                    .file = task_.file,
                    .items = static_cast<Index>(task_.items.size()),
                    .cut = encoded_.cut};
    const auto blocks = static_cast<int>((task_.items.size() + kBlock - 1) / kBlock);
    std::vector<std::vector<double>> mine;
    for (int i = 0; i < blocks; ++i) {
      if (!ranks_.owns(i)) continue;
      const std::size_t begin = static_cast<std::size_t>(i) * kBlock;
      mine.push_back(
          score_block(begin, std::min(kBlock, task_.items.size() - begin), progress).numbers());
    }
    for (const std::vector<double>& of_block : gather_parts(ranks_, blocks, mine))
      result_.add(of_block);
    table.work = result_.work;
    for (std::size_t a = 0; a < attentions_.size(); ++a) table.rows.push_back(row(a));
    return table;
  }

 private:
  std::span<const TokenPair> pairs(std::size_t begin, std::size_t count) const {
    return std::span(encoded_.pairs)
        .subspan(encoded_.first[begin], encoded_.first[begin + count] - encoded_.first[begin]);
  }

  bool is_reference(const AttentionSpec& spec) const {
    return own_reference_ && spec.kind == AttentionKind::dense;
  }

  BlockResult score_block(std::size_t begin, std::size_t count, const ShareDone& progress) {
    BlockResult block{.samples = std::vector<Sample>(attentions_.size())};
    std::vector<ScoredPair> dense;
    if (compares_) dense = score(reference_, {}, begin, count, block.work);
    for (std::size_t a = 0; a < attentions_.size(); ++a) {
      std::vector<ScoredPair> own;
      const bool same = is_reference(attentions_[a]);
      if (!same || !compares_) own = score(model_, attentions_[a], begin, count, block.work);
      add(block.samples[a], begin, count, own.empty() ? dense : own, same ? nullptr : &dense);
      const double before = static_cast<double>(begin) / static_cast<double>(task_.items.size());
      const double share = static_cast<double>(count) / static_cast<double>(task_.items.size());
      if (progress)
        progress(before +
                 share * static_cast<double>(a + 1) / static_cast<double>(attentions_.size()));
    }
    return block;
  }

  std::vector<ScoredPair> score(LoadedModel& model, const AttentionSpec& spec, std::size_t begin,
                                std::size_t count, ScoringWork& work) const {
    const ActiveAttention active(model, spec);
    return score_pairs(*model.decoder, pairs(begin, count),
                       {.causal = active.causal(), .keep_hidden = compares_}, {}, &work);
  }

  /// Items [begin, begin + count), whose pairs have been scored, beside those of dense attention.
  void add(Sample& sample, std::size_t begin, std::size_t count,
           const std::vector<ScoredPair>& scored, const std::vector<ScoredPair>* dense) const {
    const Metric metric = task_.kind->metric;
    for (std::size_t i = begin; i < begin + count; ++i) {
      const TaskItem& item = task_.items[i];
      const std::size_t first = encoded_.first[i] - encoded_.first[begin];
      const ItemScore score = item_score(scored, first, item);
      const Right own = judge(score, item, metric);
      sample.accuracy.push_back(own.accuracy);
      sample.accuracy_norm.push_back(own.accuracy_norm);
      sample.right.push_back(score.log_probs[item.right]);
      if (dense == nullptr) continue;
      const ItemScore other = item_score(*dense, first, item);
      const Right theirs = judge(other, item, metric);
      const bool same = metric == Metric::last_word ? score.is_greedy == other.is_greedy
                                                    : chosen(score) == chosen(other);
      sample.same_choice.push_back(same ? 1 : 0);
      std::vector<double> distances, divergences;
      for (std::size_t c = 0; c < item.choices.size(); ++c) {
        distances.push_back(std::abs(score.log_probs[c] - other.log_probs[c]));
        for (const double kl : kl_rows(*reference_.decoder, (*dense)[first + c].hidden,
                                       *model_.decoder, scored[first + c].hidden))
          divergences.push_back(kl);
      }
      sample.distance.push_back(mean(distances));
      sample.kl.push_back(mean(divergences));
      sample.accuracy_gain.push_back(own.accuracy - theirs.accuracy);
      sample.norm_gain.push_back(own.accuracy_norm - theirs.accuracy_norm);
      sample.right_gain.push_back(score.log_probs[item.right] - other.log_probs[item.right]);
    }
  }

  static ItemScore item_score(const std::vector<ScoredPair>& scored, std::size_t first,
                              const TaskItem& item) {
    ItemScore score;
    for (std::size_t c = 0; c < item.choices.size(); ++c)
      score.log_probs.push_back(scored[first + c].sum());
    score.is_greedy = scored[first].is_greedy;
    return score;
  }

  TaskRow row(std::size_t a) const {
    const ActiveAttention active(model_, attentions_[a]);
    const Sample& sample = result_.samples[a];
    TaskRow row{.kind = attentions_[a].settings ? "baseline" : attentions_[a].name(),
                .name = active.name(),
                .routing = active.routing(),
                .touches = TouchedPairs::of(active),
                .accuracy = estimate(sample.accuracy)};
    count_touched(row);
    const bool normalised = task_.kind->metric == Metric::normalised_choice;
    if (normalised) row.accuracy_norm = estimate(sample.accuracy_norm);
    if (task_.kind->metric == Metric::last_word) {
      const Estimate nats = estimate(sample.right);
      row.perplexity = Estimate{std::exp(-nats.value), std::exp(-nats.value) * nats.error};
    }
    if (sample.kl.empty()) return row;
    row.fidelity = TaskFidelity{.same_choice = estimate(sample.same_choice),
                                .log_prob_distance = estimate(sample.distance),
                                .kl = estimate(sample.kl),
                                .accuracy = estimate(sample.accuracy_gain),
                                .log_prob_of_right = estimate(sample.right_gain)};
    if (normalised) row.fidelity->accuracy_norm = estimate(sample.norm_gain);
    return row;
  }

  void count_touched(TaskRow& row) const {
    PairCounts all;
    std::size_t inside = 0;
    for (std::size_t i = 0; i < task_.items.size(); ++i) {
      PairCounts of_item;
      for (const TokenPair& pair : pairs(i, 1))
        of_item += row.touches.count(model_.decoder->config(), pair.fed());
      inside += of_item.distant == 0 ? 1 : 0;
      all += of_item;
    }
    row.pairs_touched = static_cast<double>(all.distant) / static_cast<double>(all.all);
    row.items_inside = static_cast<double>(inside) / static_cast<double>(task_.items.size());
  }

  LoadedModel& model_;
  Ranks& ranks_;
  std::span<const AttentionSpec> attentions_;
  const Task& task_;
  LoadedModel& reference_;
  const bool own_reference_;
  const EncodedItems encoded_;
  const bool compares_;  // false where dense attention is the only row
  BlockResult result_;
};

}  // namespace

std::size_t chosen(const ItemScore& score, std::span<const Index> lengths) {
  const auto value = [&](std::size_t c) {
    return lengths.empty() ? score.log_probs[c]
                           : score.log_probs[c] / static_cast<double>(lengths[c]);
  };
  std::size_t best = 0;
  for (std::size_t c = 1; c < score.log_probs.size(); ++c)
    if (value(c) > value(best)) best = c;
  return best;
}

TaskTable evaluate_task(LoadedModel& model, std::span<const AttentionSpec> attentions,
                        const Task& task, TextStart start, LoadedModel* reference,
                        const ShareDone& progress, Ranks& ranks) {
  return TaskEvaluation(model, attentions, task, start, reference, ranks).run(progress);
}

}  // namespace focus
