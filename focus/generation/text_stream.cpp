#include "focus/generation/text_stream.h"

#include "data/files/utf8.h"

namespace focus {
namespace {

constexpr std::size_t kContext = 8;  // tokens of the prompt before the first new one
constexpr const char* kReplacement = "\xEF\xBF\xBD";

}  // namespace

TextStream::TextStream(const Tokenizer& tokenizer, std::span<const std::int32_t> prompt)
    : tokenizer_(tokenizer) {
  for (const std::int32_t id : prompt) take(id);
  written_ = ids_.size();
  context_ = written_ - std::min(written_, kContext);
}

void TextStream::take(std::int32_t id) {
  if (id < tokenizer_.vocab_size() && !tokenizer_.is_special(id)) ids_.push_back(id);
}

std::string TextStream::text_from(std::size_t first, std::size_t end) const {
  return replace_invalid_utf8(tokenizer_.decode(std::span(ids_).subspan(first, end - first)));
}

std::string TextStream::emit_up_to_end() {
  const std::string before = text_from(context_, written_), all = text_from(context_, ids_.size());
  context_ = written_;
  written_ = ids_.size();
  return all.size() > before.size() ? all.substr(before.size()) : std::string();
}

std::string TextStream::add(std::int32_t id) {
  take(id);
  // An unfinished character decodes to U+FFFD: what follows tells whether it is one.
  if (text_from(context_, ids_.size()).ends_with(kReplacement)) return {};
  return emit_up_to_end();
}

std::string TextStream::finish() { return emit_up_to_end(); }

}  // namespace focus
