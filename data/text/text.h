#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace focus {

/// Texts: files (.txt, .jsonl, packed ones too) and folders of them, and such as are in memory, of
/// which each is a document, or several where a separator is set.
struct Texts {
  std::vector<std::filesystem::path> files = {};
  std::vector<std::string> documents = {};

  static Texts of_files(const std::vector<std::string>& names) {
    return {.files = {names.begin(), names.end()}};
  }
};

/// The text of a file, unpacked where its first bytes say that it is packed (unpack.h). Throws
/// std::runtime_error where it cannot be read, is damaged, cut short, or empty, is plainly no
/// text (see require_text), or unpacks to what no text does: more than 256 MB and 1000 times its
/// size, or a quarter of the machine's memory.
std::string read_text_file(const std::filesystem::path& path);
/// The same of a text that becomes tokens, without a byte-order mark: a notice says where it is not
/// UTF-8, that lines end in CRLF, which stays, and what it was unpacked from. Throws, too, where it
/// is in another encoding.
/// `records`: whether it holds records (holds_records()), found out where it is not known yet.
std::string read_document_file(const std::filesystem::path& path,
                               std::optional<bool>* records = nullptr);

/// Calls f with such a text, or of records with what each says (text_of()).
void for_each_text(const std::filesystem::path& path,
                   const std::function<void(const std::string&)>& f);

/// `text` as its writer meant it, where it is one text that is gone on from: without the byte-order
/// mark and the one line break at the end (LF or CRLF) that editors and echo add.
std::string_view without_file_marks(std::string_view text);
/// The same of a file (see read_document_file).
std::string read_prompt_file(const std::filesystem::path& path);

/// The parts of `text` between occurrences of `separator` (such as "<|endoftext|>"), without those
/// that hold nothing but white space; all of it, as one document, where the separator is empty.
/// The parts point into `text`.
std::vector<std::string_view> split_documents(std::string_view text, std::string_view separator);

/// Every file of the list, and for a folder in it all its *.txt and *.jsonl (*.ndjson,
/// *.jsonlines) and *.json that hold records, packed too, by name; a notice counts what is skipped.
/// Throws std::runtime_error for a path that is not there and for a folder without texts.
std::vector<std::filesystem::path> expand_text_paths(std::span<const std::filesystem::path> paths);

/// Token ids: whole numbers with blanks or commas between them. Throws std::runtime_error naming
/// what is not one.
std::vector<std::int32_t> parse_ids(const std::string& text);

/// "xz", "bzip2", "gzip" or "zstd" where these bytes, a file's first, begin such a file; else
/// empty.
std::string_view packing_of(std::string_view bytes);

/// What is packed in the bytes of a file, which is `path` in messages; they themselves where they
/// are not packed. Throws std::runtime_error where they are damaged, cut short, or unpack to what
/// no text does: more than 256 MB and 1000 times their size, or a quarter of the machine's memory.
std::string unpacked(const std::string& packed, const std::filesystem::path& path);

/// A name's ending in small letters: ".jsonl".
std::string small_ending(const std::filesystem::path& path);

/// A file's name without .gz, .xz, .bz2 or .zst.
std::filesystem::path name_without_packing(const std::filesystem::path& path);

}  // namespace focus
