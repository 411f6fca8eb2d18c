#include "focus/training/compare/compare_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <set>
#include <tuple>

#include "autograd/base/check.h"
#include "data/settings/struct_json.h"
#include "data/text/format.h"
#include "focus/evaluation/report/html_report.h"
#include "focus/training/metrics.h"

namespace focus {
namespace {

using SeedRows = std::vector<OverSeeds<TextRow>>;

/// The rows of a split: figures are means over seeds.
Table text_table(const SeedRows& rows, std::string_view split, const std::string& caption) {
  Table table{.caption = caption, .header = {"run"}};
  const auto add = [](std::vector<std::string>& cells, const std::vector<std::string>& more) {
    cells.insert(cells.end(), more.begin(), more.end());
  };
  add(table.header, row_header());
  add(table.header, {"seeds", "std", "min-max"});
  add(table.header, {"trained", "train tok/s", "peak memory"});
  for (const OverSeeds<TextRow>& row : rows) {
    const TextRow& mean = row.mean;
    if (mean.split != split) continue;
    const bool several = row.rows.size() > 1;
    const auto losses = row.each([](const TextRow& r) { return r.row.perplexity; });
    const auto peaks = row.each([](const TextRow& r) { return r.train_peak_bytes.value_or(0); });
    std::vector<std::string>& cells = table.rows.emplace_back();
    cells.push_back(mean.run.name);
    add(cells, row_cells(mean.row));
    add(cells,
        {fmt::format("{}", row.rows.size()),
         several ? number_text(standard_deviation(losses), 4) : "-",
         several ? fmt::format("{:.4f}-{:.4f}", std::ranges::min(losses), std::ranges::max(losses))
                 : "-"});
    const auto& parameters = mean.run.trainable_parameters;
    add(cells, {parameters ? fmt::format("{}", *parameters) : "-",
                number_text(mean.train_tokens_per_second, 0),
                mean.train_peak_bytes ? format_bytes(std::ranges::max(peaks)) : "-"});
  }
  drop_empty_columns(table);
  return table;
}

/// The splits (CompareEval::splits()) that have rows, and their titles.
std::vector<std::pair<std::string, std::string>> splits_of(const SeedRows& rows) {
  std::vector<std::pair<std::string, std::string>> splits = {
      {"valid", "Validation texts"},
      {"target", "Target texts"},
      {"source", "Source texts"},
      {"test", "Test texts"},
      {"test target", "Test texts of the target"},
      {"test source", "Test texts of the source"}};
  std::erase_if(splits, [&](const auto& split) {
    return std::ranges::none_of(rows,
                                [&](const auto& row) { return row.mean.split == split.first; });
  });
  return splits;
}

/// What the perplexities of a split belong to, each once, with its runs.
void add_what_is_measured(HtmlReport& page, const std::vector<TextRow>& rows,
                          std::string_view split) {
  std::vector<std::pair<std::string, std::vector<std::string>>> all;
  for (const TextRow& row : rows) {
    if (row.error || row.split != split) continue;
    const std::string what = fmt::format(
        "Perplexity of {}: {} bytes, {} tokens scored; tokenizer {}; context {}, stride {}.",
        row.texts, row.bytes, row.row.tokens_scored, row.tokenizer, row.context, row.stride);
    auto it = std::ranges::find(all, what, [](const auto& entry) { return entry.first; });
    if (it == all.end()) it = all.insert(it, {what, {}});
    if (std::ranges::find(it->second, row.run.name) == it->second.end())
      it->second.push_back(row.run.name);
  }
  for (const auto& [what, runs] : all)
    page.paragraph(all.size() == 1 ? what : fmt::format("{}: {}", fmt::join(runs, "; "), what));
  if (all.size() > 1)
    page.paragraph(
        "Perplexities with different tokenizers or windows cannot be compared; bits per byte of "
        "the same text with the same windows can.");
}

/// How a chart's points are labelled: the run is their series.
std::string point_label(const AttentionLabel& attention) {
  if (attention.kind != AttentionKind::hard) return attention.name;
  return fmt::format("k={}{}", attention.top_k.value_or(0),
                     attention.gate == HardGate::keep ? " keep" : "");
}

void add_points(HtmlReport& page, const SeedRows& rows, std::string_view split) {
  using Figure = double (*)(const TextRow&);
  const auto draw = [&](Chart chart, Figure x, Figure y) {
    for (const OverSeeds<TextRow>& row : rows) {
      const TextRow& mean = row.mean;
      // What is not causal is marked in the table; a chart would show it as a perplexity.
      if (mean.split != split || !mean.row.attention.causal || std::isnan(y(mean))) continue;
      chart.add(mean.run.name, {x(mean), y(mean), point_label(mean.row.attention)}, chart.log_y);
    }
    if (!chart.series.empty()) page.figure(points_chart(chart));
  };
  const std::string density = "attention density, %", perplexity = "perplexity, mean over seeds";
  const Figure share = [](const TextRow& r) { return 100 * r.row.pairs_attended; };
  const Figure loss = [](const TextRow& r) { return r.row.perplexity; };
  draw({.title = fmt::format("Perplexity against attention density ({})", split),
        .x_label = density,
        .y_label = perplexity},
       share, loss);
  draw({.title = fmt::format("Distance from dense attention ({})", split),
        .x_label = density,
        .y_label = "KL, nats per token",
        .log_y = true},
       share, [](const TextRow& r) { return r.row.kl.value_or(0) > 0 ? *r.row.kl : NAN; });
  draw(
      {.title = fmt::format("Perplexity against speed ({})", split),
       .x_label = "tokens scored per second",
       .y_label = perplexity},
      [](const TextRow& r) { return r.row.tokens_per_second.value_or(NAN); }, loss);
}

/// "LoRA" and "r=4, lr=0.001" of "LoRA, r=4, lr=0.001": what was swept is one series.
std::pair<std::string, std::string> split_name(const std::string& run) {
  for (std::size_t at = run.find(", "); at != std::string::npos; at = run.find(", ", at + 2)) {
    const std::size_t end = std::min(run.find(", ", at + 2), run.size());
    if (run.substr(at, end - at).find('=') != std::string::npos)
      return {run.substr(0, at), run.substr(at + 2)};
  }
  return {run, ""};
}

/// What each run, with each causal attention, has learnt of the target and kept of the source, in
/// nats per token: the logarithms of the mean perplexities. Nothing where no run has both splits.
void add_forgetting(HtmlReport& page, const SeedRows& rows, const std::string& target,
                    const std::string& source) {
  using LossPair = std::pair<const TextRow*, const TextRow*>;  // of the target, of the source
  std::vector<LossPair> points;
  for (const OverSeeds<TextRow>& learnt : rows)
    for (const OverSeeds<TextRow>& kept : rows)
      if (learnt.mean.split == target && kept.mean.split == source &&
          learnt.mean.run.name == kept.mean.run.name &&
          learnt.mean.row.attention == kept.mean.row.attention && learnt.mean.row.attention.causal)
        points.emplace_back(&learnt.mean, &kept.mean);
  if (points.empty()) return;
  // A retrofit's dense attention: the base as it was, the same for every retrofit.
  const auto is_base = [](const LossPair& point) {
    const TextRow& row = *point.first;
    return row.row.attention.kind == AttentionKind::dense && row.run.method == "retrofit";
  };
  const auto base = std::ranges::find_if(points, is_base);
  const auto loss = [](const TextRow* row) { return std::log(row->row.perplexity); };
  page.heading(target == "target" ? "Learning and forgetting"
                                  : "Learning and forgetting, test texts");
  page.paragraph(
      "Loss on the target texts against loss on the source texts, in nats per token (logarithm of "
      "the mean perplexity): points further left have learnt more, points higher have forgotten "
      "more. The line shows the base before training.");
  Chart chart{.title = fmt::format("Target loss against source loss ({})", target),
              .x_label = "loss on the target, nats per token",
              .y_label = "loss on the source"};
  Table table{.header = {"run", "attention", "target", "source", "learnt", "forgotten"}};
  if (base != points.end()) chart.references.push_back({.label = "base", .y = loss(base->second)});
  for (const LossPair& point : points) {
    if (is_base(point) && &point != &*base) continue;
    const auto& [learnt, kept] = point;
    const std::string& attention = learnt->row.attention.name;
    auto [series, label] = split_name(learnt->run.name);
    if (attention != "dense") label += (label.empty() ? "" : ", ") + attention;
    if (is_base(point)) series = label = "base";
    chart.add(series, {loss(learnt), loss(kept), label}, false);
    const auto change = [&](double more) {
      return base == points.end() ? "-" : fmt::format("{:+.4f}", more + 0.0);  // no -0
    };
    const LossPair& before = base == points.end() ? point : *base;
    table.rows.push_back({is_base(point) ? "base" : learnt->run.name, attention,
                          number_text(loss(learnt), 4), number_text(loss(kept), 4),
                          change(-(loss(learnt) - loss(before.first))),
                          change(loss(kept) - loss(before.second))});
  }
  page.figure(points_chart(chart));
  page.table(table);
}

/// The answers to each list of questions, over seeds.
std::vector<std::pair<std::string, std::vector<OverSeeds<AnswersRow>>>> answers_of(
    const std::vector<AnswersRow>& rows) {
  std::vector<std::pair<std::string, std::vector<OverSeeds<AnswersRow>>>> all;
  for (const OverSeeds<AnswersRow>& row : over_seeds(rows, [](const AnswersRow& row) {
         return std::tuple(row.questions, row.run.name, row.attention, row.from, row.to);
       })) {
    auto it = std::ranges::find(all, row.mean.questions, [](const auto& one) { return one.first; });
    if (it == all.end()) it = all.insert(it, {row.mean.questions, {}});
    it->second.push_back(row);
  }
  return all;
}

/// A line for each run and attention.
Table answers_table(const std::string& questions, const std::vector<OverSeeds<AnswersRow>>& rows) {
  std::set<std::pair<std::int64_t, std::int64_t>> distances;
  std::int64_t answers = 0;
  for (const OverSeeds<AnswersRow>& row : rows) {
    for (const AnswersRow& one : row.rows) answers = std::max(answers, one.figures.answers);
    if (row.mean.to) distances.emplace(*row.mean.from, *row.mean.to);
  }
  Table table{.caption = fmt::format("{}: {} documents, {} answers", questions,
                                     rows.front().mean.documents, answers),
              .header = {"run", "attention", "routing", "seeds", "correct", "std"}};
  for (const auto& [from, to] : distances)
    table.header.push_back(fmt::format("{} to {}", from, to));
  std::vector<std::pair<std::string, AttentionLabel>> lines;
  for (const auto& row : rows) {
    const AnswersRow& mean = row.mean;
    const std::size_t seeds = row.rows.size();
    const std::pair line(mean.run.name, mean.attention);
    const auto at = std::ranges::find(lines, line) - lines.begin();
    if (at == std::ssize(lines)) {
      lines.push_back(line);
      table.rows.push_back(
          {mean.run.name, mean.attention.name, mean.attention.routing_text(), "0", "-", "-"});
      table.rows.back().resize(table.header.size(), "-");
    }
    std::vector<std::string>& cells = table.rows[at];
    const std::string right = percent_text(mean.figures.right);
    if (mean.to) {
      const auto before = std::distance(distances.begin(), distances.find({*mean.from, *mean.to}));
      cells[6 + before] = right;
      continue;
    }
    cells[3] = fmt::format("{}", seeds);
    cells[4] = right;
    const auto right_of_seeds = row.each([](const AnswersRow& r) { return r.figures.right; });
    if (seeds > 1) cells[5] = number_text(100 * standard_deviation(right_of_seeds), 1);
  }
  return table;
}

void add_recall(HtmlReport& page, const std::vector<AnswersRow>& answers) {
  if (answers.empty()) return;
  page.heading("Recall");
  page.paragraph(fmt::format("{}; means over seeds, std over seeds (n - 1).", kRecallLegend));
  for (const auto& [questions, rows] : answers_of(answers)) {
    page.table(answers_table(questions, rows));
    std::vector<std::pair<std::string, Point>> points;
    for (const auto& row : rows)
      if (row.mean.to)
        points.push_back({fmt::format("{}, {}", row.mean.run.name, row.mean.attention.name),
                          {static_cast<double>(*row.mean.to), 100 * row.mean.figures.right}});
    add_recall_chart(page, fmt::format("Correct answers by distance ({})", questions), points);
  }
}

/// A line of a run's metrics.jsonl, as far as it is drawn; null: not measured then.
struct StepRecord {
  using Number = std::optional<double>;
  using Layers = std::optional<std::vector<Number>>;
  Number step = {}, loss = {}, valid_loss = {};
  Number largest_group = {}, size_entropy = {}, assignment_entropy = {};
  Layers largest_group_layers = {}, size_entropy_layers = {}, assignment_entropy_layers = {};

  void visit(auto&& f) {
    FOCUS_MEMBERS(f, step, loss, valid_loss, largest_group, size_entropy, assignment_entropy,
                  largest_group_layers, size_entropy_layers, assignment_entropy_layers);
  }
};

std::vector<StepRecord> read_steps(const std::string& folder) {
  const std::string path = (std::filesystem::path(folder) / "metrics.jsonl").string();
  std::vector<StepRecord> records;
  for (const nlohmann::json json : read_metrics(path))
    records.push_back(
        struct_from_json<StepRecord>(json, fmt::format("{}:{}", path, records.size() + 1)));
  return records;
}

/// Figures over steps, a line for each name: the mean where a name has a step several times.
class Curves {
 public:
  void add(const std::string& name, const StepRecord& record, const StepRecord::Number& figure) {
    if (!record.step || !figure) return;
    if (!sums_.contains(name)) names_.push_back(name);
    auto& [sum, count] = sums_[name][*record.step];
    sum += *figure;
    ++count;
  }
  /// A chart, if there is anything to draw.
  void draw(HtmlReport& report, const std::string& title, const std::string& label) const {
    Chart chart{.title = title, .x_label = "step", .y_label = label};
    for (const std::string& name : names_)
      for (const auto& [step, sum] : sums_.at(name))
        chart.add(name, {step, sum.first / sum.second});
    if (!chart.series.empty()) report.figure(line_chart(chart));
  }

 private:
  std::vector<std::string> names_;
  std::map<std::string, std::map<double, std::pair<double, int>>> sums_;  // sum and count
};

/// Charts of several runs, a line for each name: means over those of that name.
void add_mean_curves(HtmlReport& report, const std::vector<RunOutcome>& outcomes) {
  std::vector<std::pair<std::string, std::vector<StepRecord>>> runs;
  for (const RunOutcome& outcome : outcomes)
    if (outcome.train) runs.emplace_back(outcome.name, read_steps(outcome.config.out));
  const auto add = [&](StepRecord::Number StepRecord::*figure, const char* title,
                       const char* label) {
    Curves curves;
    for (const auto& [name, records] : runs)
      for (const StepRecord& record : records) curves.add(name, record, record.*figure);
    curves.draw(report, title, label);
  };
  add(&StepRecord::loss, "Training loss", "nats per token");
  add(&StepRecord::valid_loss, "Validation loss", "nats per token");
  add(&StepRecord::largest_group, "Largest group's share of tokens", "share");
  add(&StepRecord::size_entropy, "Entropy of the group sizes, mean over layers", "nats");
  add(&StepRecord::assignment_entropy, "Entropy of the token assignments, mean over layers",
      "nats");
}

}  // namespace

double standard_deviation(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const double value : values) squares += std::pow(value - mean, 2);
  return n > 1 ? std::sqrt(squares / (n - 1)) : 0;
}

SeedRows text_rows_over_seeds(const std::vector<TextRow>& rows) {
  std::vector<TextRow> done = rows;
  std::erase_if(done, [](const TextRow& row) { return row.error.has_value(); });
  return over_seeds(done, [](const TextRow& row) {
    return std::tuple(row.run.name, row.split, row.row.attention);
  });
}

void add_run(HtmlReport& report, const std::string& folder) {
  const std::vector<StepRecord> records = read_steps(folder);
  if (records.empty()) fail("{}/metrics.jsonl: has no records; give the folder of a run", folder);
  Curves losses;
  for (const StepRecord& record : records) {
    losses.add("training loss", record, record.loss);
    losses.add("validation loss", record, record.valid_loss);
  }
  losses.draw(report, "Loss of " + folder, "nats per token");
  const auto by_layer = [&](StepRecord::Layers StepRecord::*figures, const std::string& title,
                            const std::string& label) {
    Curves layers;
    for (const StepRecord& record : records)
      for (std::size_t i = 0; record.*figures && i < (record.*figures)->size(); ++i)
        layers.add(fmt::format("layer {}", i), record, (*(record.*figures))[i]);
    layers.draw(report, title + " by layer, " + folder, label);
  };
  by_layer(&StepRecord::largest_group_layers, "Largest group's share of tokens", "share");
  by_layer(&StepRecord::size_entropy_layers, "Entropy of the group sizes", "nats");
  by_layer(&StepRecord::assignment_entropy_layers, "Entropy of the token assignments", "nats");
}

std::string compare_table(const ComparedRows& rows) {
  const SeedRows means = text_rows_over_seeds(rows.texts);
  std::string text;
  for (const auto& [split, title] : splits_of(means))
    text += plain_text(text_table(means, split, fmt::format("{} texts", split)), 3) + "\n";
  for (const auto& [questions, answers] : answers_of(rows.recall))
    text += plain_text(answers_table(questions, answers), 3) + "\n";
  for (const TextRow& row : rows.texts)
    if (row.error)
      text += fmt::format("FAILED {}, seed {}: {}\n", row.run.name, row.run.seed, *row.error);
  return text;
}

std::string compare_page(const CompareConfig& config, std::size_t planned, const ComparedRows& rows,
                         const std::vector<RunOutcome>& outcomes) {
  const SeedRows means = text_rows_over_seeds(rows.texts);
  HtmlReport page(config.title);
  const std::size_t done = outcomes.size();
  page.paragraph(fmt::format(
      "{} runs{}, seeds {}. Figures are means over seeds; std: standard deviation of the "
      "perplexity over seeds (n - 1). {}; trained: trainable parameters; peak memory: of the "
      "training process. Figures that are not causal use later tokens and are not in the charts.",
      done, done == planned ? "" : fmt::format(" of {}, the others are not finished", planned),
      fmt::join(config.seeds, ", "), row_legend()));
  add_forgetting(page, means, "target", "source");
  add_forgetting(page, means, "test target", "test source");
  for (const auto& [split, title] : splits_of(means)) {
    page.heading(title);
    add_what_is_measured(page, rows.texts, split);
    page.table(text_table(means, split, ""));
    add_points(page, means, split);
  }
  add_recall(page, rows.recall);
  Table failed{.header = {"run", "seed", "error"}};
  for (const TextRow& row : rows.texts)
    if (row.error)
      failed.rows.push_back({row.run.name, fmt::format("{}", row.run.seed), *row.error});
  if (!failed.rows.empty()) {
    page.heading("Failed");
    page.table(failed);
  }
  page.heading("Training, mean over seeds");
  add_mean_curves(page, outcomes);
  return page.html();
}

}  // namespace focus
