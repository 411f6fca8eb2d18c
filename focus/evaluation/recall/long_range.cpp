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
  const double of_one = most(options.distance) + 2 * kBytesOfKey * most(options.keys);
  check(of_one * static_cast<double>(options.documents) <= kMostBytes,
        "{} documents of up to {:.0f} bytes are more than {:.0f} bytes: use fewer documents",
        options.documents, of_one, kMostBytes);
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

}  // namespace focus
