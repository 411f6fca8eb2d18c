#include "focus/evaluation/scores/encoding.h"

#include <algorithm>

#include "autograd/base/check.h"
#include "data/chat/jinja/python_text.h"

namespace focus {

std::pair<std::string, std::string> move_trailing_space(std::string_view context,
                                                        std::string_view continuation) {
  const std::size_t end = jinja::strip(context, /*left=*/false, /*right=*/true).size();
  return {std::string(context.substr(0, end)),
          std::string(context.substr(end)) + std::string(continuation)};
}

std::vector<TokenPair> rolling_windows(const TokenIds& tokens, std::int32_t prefix,
                                       Index max_length) {
  check(max_length >= 1, "rolling windows of {} tokens are not valid", max_length);
  std::vector<TokenPair> windows;
  const auto n = static_cast<Index>(tokens.size());
  for (Index done = 0; done < n;) {
    const Index scored = std::min(n - done, max_length), end = done + scored;
    TokenPair window;
    if (done == 0)
      window.context = {prefix};
    else
      window.context.assign(tokens.begin() + (end - max_length - 1), tokens.begin() + done);
    window.continuation.assign(tokens.begin() + done, tokens.begin() + end);
    windows.push_back(std::move(window));
    done = end;
  }
  return windows;
}

Index cut_left(TokenPair& pair, Index max_length) {
  const Index cut = std::max<Index>(0, pair.fed() - max_length);
  check(cut < static_cast<Index>(pair.context.size()), "cut_left: {} tokens to score, {} fit",
        pair.continuation.size(), max_length);
  pair.context.erase(pair.context.begin(), pair.context.begin() + cut);
  return cut;
}

RequestEncoder::RequestEncoder(const LoadedModel& model, TextStart start, Index max_length)
    : model_(model),
      tokenizer_(model.require_tokenizer()),
      start_(start),
      prefix_(model.document_start()) {
  if (!prefix_) prefix_ = model.document_end();
  const Index positions = model.decoder->config().max_position_embeddings;
  if (max_length > positions)
    fail("max-length {}: {} has only {} positions", max_length, model.where, positions);
  max_length_ = max_length > 0 ? max_length : positions;
}

TokenIds RequestEncoder::encode(std::string_view text, const std::string& where) const {
  if (start_ == TextStart::tokenizer) return model_.prompt_ids(text, where);
  TokenIds ids = tokenizer_.encode(text);
  if (start_ == TextStart::document && prefix_ && (ids.empty() || ids.front() != *prefix_))
    ids.insert(ids.begin(), *prefix_);
  model_.require_ids(ids, where);
  return ids;
}

std::int32_t RequestEncoder::need_prefix(const std::string& where) const {
  if (!prefix_)
    fail(
        "{}: no token precedes the first, and neither the model nor its tokenizer has a BOS or EOS "
        "id",
        where);
  return *prefix_;
}

TokenPair RequestEncoder::pair(std::string_view context, std::string_view continuation,
                               const std::string& where) const {
  const auto [before, after] = move_trailing_space(context, continuation);
  TokenPair pair;
  if (!before.empty()) {
    pair.context = encode(before, where);
    const TokenIds whole = encode(before + after, where);
    const std::size_t given = std::min(pair.context.size(), whole.size());
    pair.continuation.assign(whole.begin() + static_cast<std::ptrdiff_t>(given), whole.end());
  } else {
    pair.continuation = tokenizer_.encode(after);
    model_.require_ids(pair.continuation, where);
    if (!pair.continuation.empty() && prefix_ && pair.continuation.front() == *prefix_)
      pair.continuation.erase(pair.continuation.begin());
  }
  if (pair.context.empty()) pair.context = {need_prefix(where)};
  if (pair.continuation.empty()) fail("{}: the continuation has no tokens to score", where);
  if (static_cast<Index>(pair.continuation.size()) > max_length_)
    fail("{}: the continuation has {} tokens, but only {} fit", where, pair.continuation.size(),
         max_length_);
  return pair;
}

std::vector<TokenPair> RequestEncoder::rolling(std::string_view text,
                                               const std::string& where) const {
  const TokenIds ids = tokenizer_.encode(text);
  model_.require_ids(ids, where);
  std::vector<TokenPair> windows = rolling_windows(ids, need_prefix(where), max_length_);
  if (windows.empty()) fail("{}: the text has no tokens to score", where);
  return windows;
}

std::pair<TokenIds, Index> RequestEncoder::prompt(std::string_view context, Index most,
                                                  const std::string& where) const {
  TokenIds ids = encode(context, where);
  if (ids.empty()) ids = {need_prefix(where)};
  const Index cut = std::max<Index>(0, static_cast<Index>(ids.size()) - most);
  ids.erase(ids.begin(), ids.begin() + cut);
  return {std::move(ids), cut};
}

}  // namespace focus
