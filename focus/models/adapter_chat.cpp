#include "focus/models/adapter_chat.h"

#include <algorithm>

#include "autograd/base/check.h"
#include "data/chat/chat_template.h"
#include "data/files/json_reader.h"
#include "data/files/notice.h"

namespace focus {
namespace {

/// What differs between two tokenizers; empty where texts become the same ids.
std::string difference(const Tokenizer& a, const Tokenizer& b) {
  if (a.fingerprint() == b.fingerprint()) return "";
  if (a.vocab_size() != b.vocab_size())
    return fmt::format("{} ids, not {}", a.vocab_size(), b.vocab_size());
  const auto text_of = [](const Tokenizer& of, std::optional<std::int32_t> id) {
    return id ? json_quoted(of.decode(std::span(&*id, 1))) : "none";
  };
  for (std::int32_t id = 0; id < a.vocab_size(); ++id)
    if (text_of(a, id) != text_of(b, id))
      return fmt::format("id {} is {}, not {}", id, text_of(a, id), text_of(b, id));
  if (a.eos_id() != b.eos_id())
    return fmt::format("its EOS is {}, not {}", text_of(a, a.eos_id()), text_of(b, b.eos_id()));
  const bool around =
      std::ranges::equal(a.prefix(), b.prefix()) && std::ranges::equal(a.suffix(), b.suffix());
  return around ? "" : "it puts other tokens around a text";
}

/// The source of a template; nothing for one that cannot be read.
std::optional<std::string> source_of(const SideFiles& files, const std::string& where) {
  try {
    return find_chat_template(files, "", where).source();
  } catch (const std::runtime_error&) {
    return std::nullopt;
  }
}

}  // namespace

void take_tokenizer_files(const std::filesystem::path& folder, LoadedModel& model) {
  const std::string where = folder.string();
  SideFiles files = read_side_files(folder);
  std::string other;
  try {
    if (const auto own = find_tokenizer(folder))
      other = model.tokenizer ? difference(*own, *model.tokenizer) : "the model has none";
  } catch (const std::runtime_error& error) {
    other = error.what();
  }
  if (!other.empty())
    notice("{}: its tokenizer is not used, but that of {} ({}); --tokenizer {} takes it", where,
           model.where, other, where);
  const auto end_of = [](const SideFiles& of, const std::string& place) {
    const auto tokens = chat_special_tokens(of, place);
    const auto end = tokens.find("eos_token");
    return end == tokens.end() ? "" : end->second;
  };
  const std::string end = end_of(files, where), base_end = end_of(model.side_files(), model.where);
  if (other.empty() && !end.empty() && !base_end.empty() && end != base_end)
    notice("{}: its eos_token is {}, that of {} is {}, which is used", where, json_quoted(end),
           model.where, json_quoted(base_end));
  if (!has_chat_template(files, where)) return;
  if (has_chat_template(model.side_files(), model.where)) {
    if (source_of(files, where) == source_of(model.side_files(), model.where)) return;
    notice("{}: its chat_template is used, not that of {}", where, model.where);
  }
  model.adapter_chat = {std::move(files), where};
}

}  // namespace focus
