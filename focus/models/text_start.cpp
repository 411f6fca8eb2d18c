#include <algorithm>

#include "autograd/base/check.h"
#include "data/files/json_reader.h"
#include "focus/models/model_files.h"

namespace focus {
namespace {

TextEnds of_tokenizer(const Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return {};
  return {.prefix = {tokenizer->prefix().begin(), tokenizer->prefix().end()},
          .suffix = {tokenizer->suffix().begin(), tokenizer->suffix().end()}};
}

std::optional<std::int32_t> own_bos(const ModelConfig& config, const Tokenizer* tokenizer) {
  if (config.bos_token_id) return static_cast<std::int32_t>(*config.bos_token_id);
  return tokenizer != nullptr ? tokenizer->bos_id() : std::nullopt;
}

}  // namespace

std::optional<std::int32_t> LoadedModel::document_start() const {
  return own_bos(decoder->config(), tokenizer.get());
}

TextEnds LoadedModel::text_ends() const {
  TextEnds ends;
  if (bos == Bos::automatic) ends = of_tokenizer(tokenizer.get());
  if (bos == Bos::always)
    if (const auto start = document_start()) ends.prefix = {*start};
  return ends;
}

std::optional<std::int32_t> LoadedModel::window_start() const {
  if (bos != Bos::window) return std::nullopt;
  const TextEnds ends = of_tokenizer(tokenizer.get());
  const auto start = ends.prefix.empty() ? document_start() : ends.prefix.front();
  if (!start)
    fail(
        "{}: neither the model nor its tokenizer has a BOS for the start of each window; leave out "
        "window",
        where);
  return start;
}

void LoadedModel::require_ids(std::span<const std::int32_t> ids, const std::string& place) const {
  const Index rows = decoder->config().vocab_size;
  const auto wrong = std::ranges::find_if(ids, [&](std::int32_t id) { return id >= rows; });
  if (wrong == ids.end()) return;
  const bool known = tokenizer && *wrong < tokenizer->vocab_size();
  fail(
      "{}: token {} has the id {}{}, but {} has {} ids; leave it out of the text, or use the "
      "model's own tokenizer",
      place, wrong - ids.begin(), *wrong,
      known ? " (" + json_quoted(tokenizer->decode(std::span(&*wrong, 1))) + ")" : "", where, rows);
}

std::vector<std::int32_t> LoadedModel::end_ids() const {
  const GenerationConfig generation = files ? files->generation : GenerationConfig();
  std::vector<std::int32_t> ends = generation_ends(generation, decoder->config(), where);
  if (ends.empty() && !generation.eos_token_ids && tokenizer && tokenizer->eos_id())
    ends = {*tokenizer->eos_id()};
  return ends;
}

std::vector<std::int32_t> LoadedModel::prompt_ids(std::string_view text,
                                                  const std::string& place) const {
  std::vector<std::int32_t> ids = require_tokenizer().encode(text);
  TextEnds ends = text_ends();
  ends.suffix.clear();
  if (const auto start = window_start()) ends.prefix = {*start};
  ends.put_around(ids);
  require_ids(ids, place);
  return ids;
}

}  // namespace focus
