#include "data/text/text.h"

#include <algorithm>
#include <charconv>

#include "autograd/base/check.h"
#include "data/files/file_kind.h"
#include "data/files/input_file.h"
#include "data/files/json_reader.h"
#include "data/files/notice.h"
#include "data/text/examples.h"

namespace focus {
namespace {

constexpr std::string_view kBlanks = " \t\r\n\v\f";

bool is_text(const std::filesystem::path& path) {
  const std::string ending = small_ending(name_without_packing(path));
  if (ending == ".json") return holds_records(read_text_file(path));
  return ending == ".txt" || holds_records(path, "");
}

std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  return text.substr(text.starts_with(kMark) ? kMark.size() : 0);
}

/// The text of a file; `packing` becomes what it was packed as, empty where it was not.
std::string read_text(const std::filesystem::path& path, std::string_view& packing) {
  std::string text = read_file(path);
  packing = packing_of(text);
  if (!packing.empty()) text = unpacked(text, path);
  if (text.empty()) fail("{}: the text file is empty; remove it from the list", path.string());
  require_text(text, path);
  return text;
}

}  // namespace

std::string read_text_file(const std::filesystem::path& path) {
  std::string_view packing;
  return read_text(path, packing);
}

std::string read_document_file(const std::filesystem::path& path, std::optional<bool>* records) {
  std::string_view packing;
  std::string text = read_text(path, packing);
  text.erase(0, text.size() - without_byte_order_mark(text).size());
  tell_invalid_utf8(text, path);
  const bool known = records != nullptr && *records;
  const bool holds = known ? **records : holds_records(path, text);
  if (records != nullptr) *records = holds;
  if (!holds) tell_crlf(text, path);
  if (!packing.empty())
    notice("{}: {}, unpacked to {} bytes of UTF-8 text", path.string(), packing, text.size());
  return text;
}

void for_each_text(const std::filesystem::path& path,
                   const std::function<void(const std::string&)>& f) {
  std::optional<bool> records;
  const std::string text = read_document_file(path, &records);
  if (!*records) return f(text);
  for_each_example(text, path.string(), "text", [&](Example&& example) { f(text_of(example)); });
}

std::string_view without_file_marks(std::string_view text) {
  text = without_byte_order_mark(text);
  if (text.ends_with('\n')) text.remove_suffix(text.ends_with("\r\n") ? 2 : 1);
  return text;
}

std::string read_prompt_file(const std::filesystem::path& path) {
  const std::string text = read_text_file(path);
  tell_invalid_utf8(text, path);
  return std::string(without_file_marks(text));
}

std::vector<std::string_view> split_documents(std::string_view text, std::string_view separator) {
  if (separator.empty()) return {text};
  std::vector<std::string_view> documents;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    const std::string_view document = text.substr(begin, end - begin);
    if (document.find_first_not_of(kBlanks) != std::string_view::npos)
      documents.push_back(document);
    begin = end + separator.size();
  }
  return documents;
}

std::vector<std::filesystem::path> expand_text_paths(std::span<const std::filesystem::path> paths) {
  std::vector<std::filesystem::path> files;
  for (const std::filesystem::path& path : paths) {
    if (!is_directory(path)) {
      if (!exists(path)) fail("{}: no such text file or folder", path.string());
      files.push_back(path);
      continue;
    }
    const std::size_t before = files.size();
    std::vector<std::filesystem::path> skipped;
    for (const auto& entry : std::filesystem::directory_iterator(path))
      (!entry.is_directory() && is_text(entry.path()) ? files : skipped).push_back(entry.path());
    if (files.size() == before)
      fail("{}: the folder has no *.txt or *.jsonl file, packed or unpacked", path.string());
    if (!skipped.empty())
      notice(
          "{}: {} of its {} entries are skipped, {} among them: texts are *.txt and *.jsonl, and "
          "*.json with records",
          path.string(), skipped.size(), files.size() - before + skipped.size(),
          std::ranges::min(skipped).filename().string());
    std::sort(files.begin() + static_cast<std::ptrdiff_t>(before), files.end());
  }
  return files;
}

std::vector<std::int32_t> parse_ids(const std::string& text) {
  constexpr std::string_view kBetween = " \t\r\n,";
  std::vector<std::int32_t> ids;
  for (std::size_t begin = 0; (begin = text.find_first_not_of(kBetween, begin)) != text.npos;) {
    const std::size_t end = std::min(text.find_first_of(kBetween, begin), text.size());
    std::int32_t id = 0;
    const auto [stop, error] = std::from_chars(text.data() + begin, text.data() + end, id);
    if (error != std::errc() || stop != text.data() + end)
      fail("ids must be whole numbers separated by blanks, found {}",
           json_quoted(text.substr(begin, std::min<std::size_t>(end - begin, 40))));
    ids.push_back(id);
    begin = end;
  }
  return ids;
}

}  // namespace focus
