#include "focus/evaluation/recall/long_range.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "autograd/base/check.h"
#include "data/files/input_file.h"
#include "data/files/json_reader.h"
#include "data/settings/config.h"
#include "data/text/text.h"
#include "focus/evaluation/scores/pair_scores.h"

namespace focus {
namespace {

/// The token that holds a byte of the text that `ids` are of.
Index token_holding(const Tokenizer& tokenizer, std::span<const std::int32_t> ids,
                    std::size_t byte) {
  std::size_t low = 0, high = ids.size();
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    if (tokenizer.decode(ids.first(middle + 1)).size() > byte)
      high = middle;
    else
      low = middle + 1;
  }
  return static_cast<Index>(low);
}

/// Makes means of sums.
void finish(AnswerFigures& all) {
  const auto answers = static_cast<double>(all.answers);
  all.right /= answers;
  all.standard_error = std::sqrt(all.right * (1 - all.right) / answers);
  all.nats_per_token /= static_cast<double>(all.tokens);
}

/// Whether each answer of an item is right, and its nats.
std::vector<double> score_item(const Decoder& decoder, const RecallItem& item) {
  const Tensor hidden = decoder.hidden_states(item.ids, 1).value();
  std::vector<std::int32_t> targets;
  std::vector<Real> before;  // the rows that predict them
  for (const RecallItem::Span& answer : item.answers) {
    targets.insert(targets.end(), item.ids.begin() + answer.begin, item.ids.begin() + answer.end);
    const Tensor rows = rows_of(hidden, answer.begin - 1, answer.end - answer.begin);
    before.insert(before.end(), rows.span().begin(), rows.span().end());
  }
  const Tensor rows = Tensor::from({std::ssize(targets), hidden.cols()}, before);
  const std::vector<double> nats = decoder.cross_entropy_rows(rows, targets);
  std::vector<bool> likeliest;
  for_logits(decoder, rows, [&](Index, Index count, const Tensor& logits) {
    for (Index r = 0; r < count; ++r) {
      const Real* const x = logits.data() + r * logits.cols();
      likeliest.push_back(std::max_element(x, x + logits.cols()) - x == targets[likeliest.size()]);
    }
  });
  std::vector<double> scores;
  std::size_t at = 0;
  for (const RecallItem::Span& answer : item.answers) {
    bool is_right = true;
    double sum = 0;
    for (Index t = answer.begin; t < answer.end; ++t, ++at) {
      sum += nats[at];
      is_right = is_right && likeliest[at];
    }
    if (!std::isfinite(sum))
      fail("{}: the loss of an answer is {}; the model's weights or the attention overflow",
           item.name, sum);
    scores.insert(scores.end(), {is_right ? 1.0 : 0.0, sum});
  }
  return scores;
}

/// Questions are made before anything is asked: no more than fit.
void refuse_too_much(const FarCorpusOptions& options) {
  constexpr double kMostBytes = 1 << 30, kBytesOfKey = 48;
  const auto most = [](const std::vector<std::int64_t>& values) {
    return static_cast<double>(*std::ranges::max_element(values));
  };
  if (options.keys.empty() || options.distance.empty()) return;  // reported where they are created
  const double of_one = static_cast<double>(options.length) + most(options.distance) +
                        kBytesOfKey * most(options.keys) * static_cast<double>(1 + options.asked);
  check(of_one * static_cast<double>(options.documents) <= kMostBytes,
        "{} documents of up to {:.0f} bytes are more than {:.0f} bytes: use fewer documents",
        options.documents, of_one, kMostBytes);
}

/// The mean over the long-range tokens, or over the others.
std::optional<double> mean_where(std::span<const double> nats, const std::vector<bool>& far,
                                 bool is_far) {
  double sum = 0;
  std::int64_t count = 0;
  for (std::size_t i = 0; i < nats.size(); ++i)
    if (far[i] == is_far) {
      sum += nats[i];
      ++count;
    }
  if (count == 0) return std::nullopt;
  return sum / static_cast<double>(count);
}

/// The attention that reads nothing far: the local window and first tokens of the model's Focus, or
/// a window as wide as the short context.
AttentionSpec window_of(const LoadedModel& model, const FarSettings& settings) {
  if (model.focus() == nullptr)
    return parse_attention(fmt::format("sink_window:{}", settings.context));
  const FocusConfig& config = model.focus()->config();
  return parse_attention(
      fmt::format("sink_window:{}:sinks={}", config.local_window, config.summary.sinks));
}

}  // namespace

std::vector<RecallItem> recall_items(const LoadedModel& model,
                                     std::span<const AskedDocument> documents,
                                     const std::string& where, bool beyond_positions) {
  const Tokenizer& tokenizer = model.require_tokenizer();
  TextEnds ends = model.text_ends();
  if (const auto start = model.window_start()) ends.prefix = {*start};
  std::vector<RecallItem> items;
  for (const AskedDocument& document : documents) {
    const std::vector<std::int32_t> ids = tokenizer.encode(document.text);
    RecallItem item{
        .name = fmt::format("{}, document {}", where, items.size() + 1), .ids = ids, .answers = {}};
    if (tokenizer.decode(ids) != document.text)
      fail("{}: the tokenizer does not reproduce its text, so its answers cannot be located",
           item.name);
    const auto holding = [&](std::size_t byte) { return token_holding(tokenizer, ids, byte); };
    ends.put_around(item.ids);
    const Index shift = ends.put_before(ids);
    for (const Answer& answer : document.answers) {
      const RecallItem::Span span{.begin = holding(answer.begin) + shift,
                                  .end = holding(answer.end - 1) + 1 + shift,
                                  .distance = holding(answer.begin) - holding(answer.source)};
      if (span.begin == 0) fail("{}: no token precedes its first answer", item.name);
      item.answers.push_back(span);
    }
    model.require_ids(item.ids, item.name);
    require_positions(model, static_cast<Index>(item.ids.size()), beyond_positions,
                      item.name + ": its length of");
    items.push_back(std::move(item));
  }
  return items;
}

std::vector<AskedDocument> asked_documents(const std::string& file_or_spec) {
  std::error_code none;  // a name that no file could have is of no file
  if (std::filesystem::exists(file_or_spec, none))
    return read_questions(read_text_file(file_or_spec), file_or_spec);
  FarCorpusOptions options{.documents = 100, .seed = 100};
  std::vector<std::string> overrides = split_word(file_or_spec, ':');
  const std::string kind = overrides[0];
  constexpr auto kinds = enum_names(CorpusKind{});
  if (std::ranges::find(kinds, kind) == kinds.end() || kind == "tales")
    fail("--recall {}: neither a file nor a kind of document ({})", shown(file_or_spec),
         fmt::join(std::span(kinds).subspan(1), ", "));
  overrides[0] = "kind=" + kind;
  try {
    read_config_text("", "", overrides, options);
    refuse_too_much(options);
    return generate_far_documents(options);
  } catch (const std::exception& error) {
    std::string problems = error.what();
    std::ranges::replace(problems, '\n', ';');
    fail("--recall {}: {}", shown(file_or_spec), problems);
  }
}

RecallRow evaluate_recall(LoadedModel& model, const AttentionSpec& attention,
                          std::span<const RecallItem> items, const ShareDone& progress,
                          Ranks& ranks) {
  const NoGrad guard;
  const ActiveAttention active(model, attention);
  std::vector<std::vector<double>> own;  // scores of the items of this process
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!ranks.owns(static_cast<int>(i))) continue;
    own.push_back(score_item(*model.decoder, items[i]));
    if (progress) progress(static_cast<double>(i + 1) / static_cast<double>(items.size()));
  }
  const auto scores = gather_parts(ranks, static_cast<int>(items.size()), own);
  RecallRow row{.attention = active.label()};
  std::map<Index, RecallBucket> buckets;  // by their last distance
  for (std::size_t i = 0; i < items.size(); ++i)
    for (std::size_t a = 0; a < items[i].answers.size(); ++a) {
      const RecallItem::Span& answer = items[i].answers[a];
      const auto to =
          std::max(Index{32},
                   static_cast<Index>(std::bit_ceil(static_cast<std::uint64_t>(answer.distance))));
      RecallBucket& bucket = buckets[to];
      bucket.from = to == 32 ? 1 : to / 2 + 1;
      bucket.to = to;
      for (AnswerFigures* const figures : {&row.all, &bucket.figures}) {  // sums at first
        ++figures->answers;
        figures->right += scores[i][2 * a];
        figures->tokens += answer.end - answer.begin;
        figures->nats_per_token += scores[i][2 * a + 1];
      }
    }
  finish(row.all);
  for (auto& [to, bucket] : buckets) {
    finish(bucket.figures);
    row.by_distance.push_back(bucket);
  }
  return row;
}

std::vector<bool> far_tokens(const TokenLosses& dense, const TokenLosses& near, double margin) {
  // Windows without overlap leave out their first tokens, which the short contexts have.
  std::vector<double> of_token(near.tokens, NAN);
  for (std::size_t i = 0; i < near.nats.size(); ++i) of_token[near.token[i]] = near.nats[i];
  std::vector<bool> far;
  for (std::size_t i = 0; i < dense.nats.size(); ++i) {
    const auto token = static_cast<std::size_t>(dense.token[i]);
    check(token < of_token.size() && !std::isnan(of_token[token]),
          "long-range tokens: the short context did not score token {}", token);
    far.push_back(of_token[token] - dense.nats[i] > margin);
  }
  return far;
}

FarReport far_report(std::span<const RowLosses> rows, const RowLosses& dense,
                     const RowLosses& window, const TokenLosses& near,
                     const FarSettings& settings) {
  const std::vector<bool> far = far_tokens(dense.losses, near, settings.margin);
  const std::vector<bool> all(far.size(), true);
  FarReport report{.settings = settings,
                   .tokens = static_cast<std::int64_t>(far.size()),
                   .far = std::ranges::count(far, true),
                   .window = window.attention.name};
  for (const RowLosses& row : rows) {
    check(row.losses.nats.size() == far.size(), "long-range tokens: {} scored {} tokens, dense {}",
          row.attention.name, row.losses.nats.size(), far.size());
    const auto kept = [&](const std::vector<bool>& where) -> std::optional<double> {
      const auto mean = [&](const RowLosses& of) {
        return mean_where(of.losses.nats, where, true);
      };
      const auto of_window = mean(window), of_dense = mean(dense);
      if (!of_window || !(*of_window > *of_dense)) return std::nullopt;
      return (*of_window - *mean(row)) / (*of_window - *of_dense);
    };
    report.rows.push_back({.attention = row.attention,
                           .figures = {.nats_far = mean_where(row.losses.nats, far, true),
                                       .nats_others = mean_where(row.losses.nats, far, false),
                                       .kept_far = kept(far),
                                       .kept_all = kept(all)}});
  }
  return report;
}

FarReport measure_far(LoadedModel& model, std::span<const EvalText> texts,
                      const EvalSettings& settings, const FarSettings& far,
                      std::vector<RowLosses> rows, Ranks& ranks, LoadedModel* reference) {
  if (reference != nullptr) require_comparable(*reference, model);
  LoadedModel& measured = reference != nullptr ? *reference : model;
  const std::string of = reference != nullptr ? reference->where + ": " : "";
  // The index of an attention's row; a missing row is added at one end.
  const auto place_of = [&](const AttentionSpec& spec, bool in_front) {
    RowLosses row{.attention = ActiveAttention(measured, spec).label()};
    row.attention.name = of + row.attention.name;
    const auto found = std::ranges::find(rows, row.attention.name,
                                         [](const RowLosses& r) { return r.attention.name; });
    if (found != rows.end()) return found - rows.begin();
    evaluate(measured, spec, texts, settings, {.losses = &row.losses, .ranks = &ranks});
    const auto place = rows.insert(in_front ? rows.begin() : rows.end(), std::move(row));
    return place - rows.begin();
  };
  const auto dense = static_cast<std::size_t>(place_of({.kind = AttentionKind::dense}, true));
  const auto window = static_cast<std::size_t>(place_of(window_of(measured, far), false));
  TokenLosses near;
  const ActiveAttention active(measured, {.kind = AttentionKind::dense});
  evaluate(*measured.decoder, texts, far.windows(), {.losses = &near, .ranks = &ranks});
  FarReport report = far_report(rows, rows[dense], rows[window], near, far);
  if (reference != nullptr) report.reference = reference->where;
  return report;
}

}  // namespace focus
