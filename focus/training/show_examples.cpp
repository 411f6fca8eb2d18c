#include "focus/training/show_examples.h"

#include <fmt/format.h>

#include <algorithm>

#include "data/files/json_reader.h"
#include "focus/training/fit.h"

namespace focus {
namespace {

/// Tokens of a run that are shown at its beginning and at its end; those between are counted.
constexpr Index kShownFirst = 96, kShownLast = 32;

std::string shown_tokens(std::span<const std::int32_t> ids, const Tokenizer& tokenizer) {
  std::string text;
  const Index size = std::ssize(ids);
  for (Index i = 0; i < size; ++i) {
    if (size > kShownFirst + kShownLast && i == kShownFirst) {
      text += fmt::format(" ... {} tokens ... ", size - kShownFirst - kShownLast);
      i = size - kShownLast;
    }
    text += (i == 0 ? "" : "\u00b7") + shown_whole(tokenizer.decode(ids.subspan(i, 1)));
  }
  return text;
}

void add_window(const Batch& batch, const Tokenizer& tokenizer, bool colour, std::string& text) {
  // Token t is learned where the one before it has it for its target.
  std::vector<bool> learned(batch.ids.size());
  const std::vector<std::int32_t> targets = batch.targets();
  for (std::size_t t = 0; t + 1 < learned.size(); ++t) learned[t + 1] = targets[t] >= 0;
  const auto begins_document = [&](std::size_t t) {
    return std::ranges::find(batch.documents, static_cast<Index>(t)) != batch.documents.end();
  };
  for (std::size_t begin = 0, end = 0; begin < learned.size(); begin = end) {
    if (begin > 0 && begins_document(begin)) text += "  ------- next document\n";
    // The first token of a document has no loss, whatever those after it have.
    for (end = begin + 1; end < learned.size() && learned[end] == learned[begin]; ++end)
      if (begins_document(end)) break;
    const std::string tokens =
        shown_tokens(std::span(batch.ids).subspan(begin, end - begin), tokenizer);
    const char* const style = learned[begin] ? "\x1b[32m" : "\x1b[2m";
    text += fmt::format("  {} {:>5} | {}{}{}\n", learned[begin] ? "learned" : "context",
                        end - begin, colour ? style : "", tokens, colour ? "\x1b[0m" : "");
  }
}

}  // namespace

std::string shown_examples(const TrainingData& data, const Tokenizer& tokenizer, Index count,
                           bool colour) {
  const Index windows = data.train.num_windows();
  std::string text;
  Index all = 0, learned = 0;
  for (Index i = 0; i < windows; ++i) {
    const Batch batch = data.train.windows(i, 1);
    const Index targets = count_targets(batch);
    all += std::ssize(batch.ids);
    learned += targets;
    if (i >= count) continue;
    const Index documents = std::max<Index>(1, std::ssize(batch.documents) - 1);
    text += fmt::format("window {} of {}: {} tokens of {}, {} learned{}\n", i + 1, windows,
                        batch.ids.size(), data.train.context(), targets,
                        data.train.by_document() ? fmt::format(", documents {}", documents) : "");
    add_window(batch, tokenizer, colour, text);
  }
  return text + fmt::format("{} windows, {} tokens, the loss is of {} ({:.1f} %)\n", windows, all,
                            learned,
                            100.0 * static_cast<double>(learned) / static_cast<double>(all));
}

}  // namespace focus
