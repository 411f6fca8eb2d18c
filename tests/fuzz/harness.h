#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <typeinfo>
#include <vector>

/// What the fuzz targets share. libFuzzer gives a target inputs of its own (preset fuzz),
/// replay.cpp gives it files (the ordinary tests).
namespace focus::fuzz {

/// Each target defines it: what is tried with an input.
void try_input(std::string_view input);

/// Ends the program with a line on stderr: what a target found wrong.
[[noreturn]] void report(const std::string& what);

/// While it lives, operator new may hand out at most `bytes` beyond what was in use before;
/// beyond that the program ends with a report. Of nested ones the innermost counts.
class AllocationLimit {
 public:
  explicit AllocationLimit(std::size_t bytes);
  ~AllocationLimit();
  AllocationLimit(const AllocationLimit&) = delete;
  AllocationLimit& operator=(const AllocationLimit&) = delete;

 private:
  std::size_t outer_;
};

/// Bytes that a loader may take for one byte of its file, and for any file at all (buffers, tables
/// made at the first use, messages).
inline constexpr std::size_t kBytesPerByte = 64;
inline constexpr std::size_t kSlack = std::size_t{2} << 20;

/// Beginnings of lines.
using LineStarts = std::initializer_list<std::string_view>;

/// Reports unless `message` is what the program may print: one line of UTF-8 without control
/// characters, or as many as there are problems, where each line begins with one of `starts`.
void check_message(std::string_view message, LineStarts starts);

/// Runs a loader on an input of that many bytes. It may succeed or throw exactly
/// std::runtime_error or std::invalid_argument with a proper message; any other exception ends the
/// program. Returns whether it succeeded.
template <class Load>
bool run_loader(std::size_t input_bytes, Load&& load, LineStarts starts = {}) {
  const AllocationLimit limit(kBytesPerByte * input_bytes + kSlack);
  try {
    load();
    return true;
  } catch (const std::runtime_error& error) {
    // Libraries derive their own exceptions from it: those must not come through.
    if (typeid(error) != typeid(std::runtime_error)) throw;
    check_message(error.what(), starts);
  } catch (const std::invalid_argument& error) {
    if (typeid(error) != typeid(std::invalid_argument)) throw;
    check_message(error.what(), starts);
  }
  return false;
}

/// The parts of an input between NUL bytes; the last one takes the rest.
template <std::size_t N>
std::array<std::string, N> split_input(std::string_view rest) {
  std::array<std::string, N> parts;
  for (std::size_t i = 0; i < N && !rest.empty(); ++i) {
    const std::size_t end = i + 1 < N ? rest.find('\0') : std::string_view::npos;
    parts[i] = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  return parts;
}

/// The lines of a part, without their ends.
inline std::vector<std::string> lines_of(const std::string& part) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < part.size();) {
    const std::size_t end = std::min(part.find('\n', begin), part.size());
    lines.push_back(part.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

/// A file in memory, for loaders that want a path.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::filesystem::path path() const;

 private:
  int descriptor_;
};

}  // namespace focus::fuzz
