#include <algorithm>

#include "autograd/base/check.h"
#include "data/files/notice.h"
#include "data/text/text.h"
#include "data/text/wikitext.h"
#include "focus/evaluation/evaluation.h"

namespace focus {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpace);
  return begin == std::string_view::npos
             ? std::string_view()
             : text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

EvalText tokenized(const LoadedModel& model, const std::string& name, std::string_view document,
                   const EvalSettings& settings) {
  const Tokenizer& tokenizer = model.require_tokenizer();
  const bool wikitext = settings.detokenize == Detokenize::wikitext;
  EvalText text{
      name,
      wikitext ? tokenizer.encode(wikitext_detokenized(document)) : tokenizer.encode(document),
      static_cast<std::int64_t>(document.size()),
      wikitext ? count_wikitext_words(document) : count_words(document), model.window_start()};
  // One that is in the text already is the first window's.
  if (text.window_start && !text.ids.empty() && text.ids.front() == *text.window_start)
    text.ids.erase(text.ids.begin());
  TextEnds ends = model.text_ends();
  const Index put = text.lead() + ends.put_before(text.ids);
  const auto most = static_cast<std::size_t>(std::max<Index>(0, settings.max_tokens - put));
  if (settings.max_tokens > 0 && text.ids.size() > most) {
    text.ids.resize(most);
    ends.suffix.clear();
    const std::string left = tokenizer.decode(text.ids);
    text.bytes = static_cast<std::int64_t>(left.size());
    text.words = count_words(left);
  }
  ends.put_around(text.ids);
  model.require_ids(text.ids, text.name);
  return text;
}

/// A line of JSONL: bytes and words are those of what the loss is of.
EvalText tokenized(const LoadedModel& model, const std::string& path, const Example& example,
                   const ExampleFormat& format, Index max_tokens) {
  const Tokenizer& tokenizer = model.require_tokenizer();
  ExampleTokens tokens = tokens_of(example, tokenizer, format, path);
  EvalText text{.name = fmt::format("{}: {}", path, example.place()),
                .ids = std::move(tokens.ids),
                .window_start = model.window_start(),
                .is_example = true};
  if (example.kind != Example::Kind::text) text.counts = std::move(tokens.counts);
  if (max_tokens > 0 && static_cast<Index>(text.ids.size()) > max_tokens - text.lead()) {
    text.ids.resize(max_tokens - text.lead());
    if (!text.counts.empty()) text.counts.resize(text.ids.size());
  }
  std::vector<std::int32_t> scored;
  for (std::size_t i = 0; i < text.ids.size(); ++i)
    if (text.counts_at(static_cast<Index>(i)) && !tokenizer.is_special(text.ids[i]))
      scored.push_back(text.ids[i]);
  const std::string read = tokenizer.decode(scored);
  text.bytes = static_cast<std::int64_t>(read.size());
  text.words = count_words(read);
  model.require_ids(text.ids, text.name);
  return text;
}

/// Lines of JSONL, as many as are asked for.
void add_examples(const LoadedModel& model, const std::string& path, const std::string& file,
                  const EvalSettings& settings, std::vector<EvalText>& texts) {
  check(settings.detokenize == Detokenize::none,
        "{}: detokenize applies to .txt files, not to JSONL", path);
  const ExampleFormat format = example_format(model, settings.examples);
  std::size_t left_out = 0;
  for_each_example(file, path, settings.examples.dataset_text_field, [&](Example&& example) {
    if (settings.max_documents > 0 && std::ssize(texts) >= settings.max_documents) return;
    EvalText text = tokenized(model, path, example, format, settings.max_tokens);
    if (text.scored() > 0)
      texts.push_back(std::move(text));
    else
      ++left_out;
  });
  if (left_out > 0)
    notice("{}: {} lines are left out: they have no token to score", path, left_out);
}

}  // namespace

void require_positions(const LoadedModel& model, Index tokens, bool beyond,
                       const std::string& what) {
  const ModelConfig& config = model.decoder->config();
  const Index positions = config.max_position_embeddings;
  const char* way_out = config.learned_positions ? (beyond ? ", which are a learned table" : "")
                                                 : "; --beyond-positions allows it";
  check(tokens <= positions || (beyond && !config.learned_positions),
        "{} {} is longer than the {} positions of {}{}", what, tokens, positions, model.where,
        way_out);
}

std::string positions_notice(const LoadedModel& model, Index tokens) {
  const Index positions = model.decoder->config().max_position_embeddings;
  if (tokens <= positions) return "";
  return fmt::format(
      "{} tokens exceed the {} positions that {} was trained with: its rotary angles continue, but "
      "the model was not trained on them",
      tokens, positions, model.where);
}

Index fitted_context(const LoadedModel& model) {
  FocusModel* const focus = model.focus();
  return focus == nullptr ? 0 : focus->grouping().fitted_context();
}

std::string fit_notice(const LoadedModel& model, Index tokens) {
  const Index fitted = fitted_context(model);
  if (fitted == 0 || tokens <= fitted) return "";
  return fmt::format(
      "the groups were fitted on windows of {} tokens; in {} they are uneven, cost more and lose "
      "more: fit "
      "them on windows of that length (focus fit --context {})",
      fitted, tokens, tokens);
}

Index EvalText::scored() const {
  Index count = 0;
  for (Index i = 1 - lead(); i < std::ssize(ids); ++i) count += counts_at(i) ? 1 : 0;
  return count;
}

std::vector<EvalText> read_texts(const LoadedModel& model, const Texts& given,
                                 const EvalSettings& settings) {
  std::vector<EvalText> texts;
  const auto add = [&](const std::string& name, const std::string& text) {
    for (const std::string_view part : split_documents(text, settings.separator))
      if (settings.max_documents == 0 || std::ssize(texts) < settings.max_documents)
        texts.push_back(
            tokenized(model, name, settings.separator.empty() ? part : trimmed(part), settings));
  };
  for (const auto& path : expand_text_paths(given.files)) {
    std::optional<bool> records;
    const std::string text = read_document_file(path, &records);
    if (*records)
      add_examples(model, path.string(), text, settings, texts);
    else
      add(path.string(), text);
  }
  for (std::size_t i = 0; i < given.documents.size(); ++i)
    add(fmt::format("text {}", i + 1), given.documents[i]);
  if (texts.empty()) fail("the texts have no token to score");
  return texts;
}

}  // namespace focus
