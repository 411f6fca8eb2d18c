// The house's rules, read off the sources: includes go down the ladder and in no circle, and a file
// is short enough to be read.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

const fs::path kRoot = FOCUS_SOURCE_DIR;
constexpr std::size_t kMostLines = 500;
constexpr std::size_t kMostLinesOfTests = 37756;

/// What each folder may include, beside itself.
const std::map<std::string, std::set<std::string>> kLadder = {
    {"autograd", {}},
    {"data", {"autograd"}},
    {"optim", {"autograd"}},
    {"layers", {"autograd", "data"}},
    {"focus", {"autograd", "data", "optim", "layers"}},
    {"apps", {"autograd", "data", "optim", "layers", "focus"}},
};

struct Source {
  std::string path;  // from the root
  std::size_t lines = 0;
  std::vector<std::string> includes;  // "autograd/tensor.h"
  std::set<std::string> namespaces;   // of the project's, "focus::app"
};

std::string top_of(const std::string& path) { return path.substr(0, path.find('/')); }

const std::vector<Source>& sources() {
  static const std::vector<Source> all = [] {
    std::vector<Source> found;
    for (const auto& [folder, below] : kLadder)
      for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
        const std::string extension = entry.path().extension().string();
        if (extension != ".h" && extension != ".cpp" && extension != ".inc") continue;
        Source source{.path = fs::relative(entry.path(), kRoot).generic_string(),
                      .includes = {},
                      .namespaces = {}};
        std::ifstream file(entry.path());
        const std::string include = "#include \"", space = "namespace ";
        for (std::string line; std::getline(file, line); ++source.lines) {
          if (line.starts_with(include))
            source.includes.push_back(
                line.substr(include.size(), line.rfind('"') - include.size()));
          if (line.starts_with(space + "focus"))
            source.namespaces.insert(
                line.substr(space.size(), line.find(' ', space.size()) - space.size()));
        }
        found.push_back(std::move(source));
      }
    return found;
  }();
  return all;
}

TEST(Structure, IncludesGoDownTheLadder) {
  ASSERT_GT(sources().size(), 200u);
  for (const Source& source : sources())
    for (const std::string& include : source.includes) {
      const std::string from = top_of(source.path), to = top_of(include);
      EXPECT_TRUE(from == to || kLadder.at(from).contains(to))
          << source.path << " includes " << include;
    }
}

using Includes = std::map<std::string, std::set<std::string>>;

/// Which of these include which others; room_of(path) is empty for a file that is in none.
template <class F>
Includes includes_between(F&& room_of) {
  Includes below;
  for (const Source& source : sources())
    for (const std::string& include : source.includes) {
      const std::string from = room_of(source.path), to = room_of(include);
      if (!from.empty() && !to.empty() && from != to) below[from].insert(to);
    }
  return below;
}

void expect_no_circle(const Includes& below) {
  std::set<std::string> done;
  std::vector<std::string> way;
  const auto visit = [&](auto&& self, const std::string& room) -> void {
    ASSERT_EQ(std::ranges::count(way, room), 0) << room << " in " << testing::PrintToString(way);
    if (!done.insert(room).second) return;
    way.push_back(room);
    if (const auto found = below.find(room); found != below.end())
      for (const std::string& next : found->second) self(self, next);
    way.pop_back();
  };
  for (const auto& [room, others] : below) visit(visit, room);
}

TEST(Structure, HeadersIncludeEachOtherInNoCircle) {
  expect_no_circle(includes_between([](const std::string& path) { return path; }));
}

TEST(Structure, JinjaIsALibraryOfItsOwn) {
  const std::set<std::string> readers = {"autograd/base/check.h", "data/files/json_reader.h",
                                         "data/files/utf8.h"};
  const auto in_jinja = [](const std::string& path) {
    return path.starts_with("data/chat/jinja/");
  };
  EXPECT_GT(std::ranges::count_if(sources(), in_jinja, &Source::path), 15);
  for (const Source& source : sources())
    for (const std::string& include : source.includes)
      if (in_jinja(source.path) || readers.contains(source.path)) {
        EXPECT_TRUE(in_jinja(include) || readers.contains(include))
            << source.path << " includes " << include;
      }
}

/// "focus/models" of "focus/models/model_files.h"; nothing for a file beside folders, which may
/// share its types with them.
std::string room_of(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  for (const auto& entry : fs::directory_iterator(kRoot / folder))
    if (entry.is_directory()) return "";
  return folder.generic_string();
}

TEST(Structure, FocusHasEightRooms) {
  std::set<std::string> rooms, files;
  for (const auto& entry : fs::directory_iterator(kRoot / "focus"))
    if (entry.is_directory())
      rooms.insert(entry.path().filename());
    else if (entry.path().extension() != ".txt")
      files.insert(entry.path().filename());
  EXPECT_EQ(rooms, (std::set<std::string>{"adapters", "c_interface", "evaluation", "generation",
                                          "method", "models", "speed", "training"}));
  EXPECT_LE(files.size(), 5u) << testing::PrintToString(files);
}

TEST(Structure, FoldersOfDataAndFocusIncludeEachOtherInNoCircle) {
  const Includes below = includes_between([](const std::string& path) {
    return top_of(path) == "data" || top_of(path) == "focus" ? room_of(path) : "";
  });
  ASSERT_GT(below.size(), 10u);
  expect_no_circle(below);
}

TEST(Structure, TheRoomsOfFocusIncludeEachOtherInNoCircle) {
  // "models" of "focus/models/model_files.h"; empty for the files beside the rooms.
  const Includes below = includes_between([](const std::string& path) {
    const fs::path inside = fs::path(path).lexically_relative("focus");
    return top_of(path) == "focus" && inside.has_parent_path() ? inside.begin()->string() : "";
  });
  EXPECT_TRUE(below.at("training").contains("evaluation"));
  expect_no_circle(below);
}

/// The folders that focus/CMakeLists.txt lists behind a word of focus_library
/// (cmake/library.cmake).
std::set<std::string> listed_folders(const std::string& word) {
  std::ifstream file(kRoot / "focus/CMakeLists.txt");
  std::set<std::string> folders;
  bool listed = false;
  for (std::string next; file >> next;) {
    if (next == word)
      listed = true;
    else if (!next.starts_with("focus/"))
      listed = false;
    else if (listed)
      folders.insert(next);
  }
  return folders;
}

TEST(Structure, WhatTheDoubleTwinLacksIsUsedByNothingThatItHas) {
  const std::set<std::string> lacks = listed_folders("FLOAT");
  ASSERT_FALSE(lacks.empty());
  for (const Source& source : sources())
    for (const std::string& include : source.includes) {
      if (top_of(source.path) != "focus" || !lacks.contains(room_of(include))) continue;
      const std::string room = room_of(source.path);
      EXPECT_TRUE(lacks.contains(room) || room == "focus/c_interface" ||
                  source.path == "focus/all.h")
          << source.path << " includes " << include
          << ": its folder belongs into FLOAT, or the other's not (focus/CMakeLists.txt)";
    }
}

TEST(Structure, NoFileIsTooLongToBeRead) {
  for (const Source& source : sources())
    EXPECT_LE(source.lines, kMostLines) << source.path << " wants to be two files";
}

/// The most lines of each folder, with those below its second level. What grows needs a deletion,
/// or a reason in the commit; what shrinks lowers its budget.
const std::map<std::string, std::size_t> kBudgets = {{"apps", 4925},
                                                     {"apps/terminal", 205},
                                                     {"autograd", 1083},
                                                     {"autograd/attention", 1910},
                                                     {"autograd/base", 785},
                                                     {"autograd/gemm", 1755},
                                                     {"autograd/ops", 885},
                                                     {"autograd/simd", 3785},
                                                     {"data/chat", 4425},
                                                     {"data/files", 1708},
                                                     {"data/gguf", 1780},
                                                     {"data/settings", 1185},
                                                     {"data/synthetic", 580},
                                                     {"data/tensors", 1915},
                                                     {"data/text", 875},
                                                     {"data/tokenizers", 3001},
                                                     {"data/tokens", 1515},
                                                     {"focus", 459},
                                                     {"focus/adapters", 3050},
                                                     {"focus/c_interface", 939},
                                                     {"focus/evaluation", 4267},
                                                     {"focus/generation", 2028},
                                                     {"focus/method", 7400},
                                                     {"focus/models", 1951},
                                                     {"focus/speed", 640},
                                                     {"focus/training", 4562},
                                                     {"layers", 3142},
                                                     {"layers/architectures", 610},
                                                     {"optim", 540}};

TEST(Structure, FoldersKeepTheirBudgets) {
  std::map<std::string, std::size_t> lines;
  for (const Source& source : sources()) {
    const std::string folder = fs::path(source.path).parent_path().generic_string();
    const auto first = folder.find('/');
    lines[first == std::string::npos ? folder : folder.substr(0, folder.find('/', first + 1))] +=
        source.lines;
  }
  for (const auto& [folder, count] : lines) {
    ASSERT_TRUE(kBudgets.contains(folder)) << folder << " has no budget";
    EXPECT_LE(count, kBudgets.at(folder)) << folder << " has passed its budget";
  }
  EXPECT_EQ(lines.size(), kBudgets.size()) << "a folder is gone: so is its budget";
}

TEST(Structure, TestsKeepTheirBudget) {
  std::size_t lines = 0;
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / "tests")) {
    if (entry.path().extension() != ".h" && entry.path().extension() != ".cpp") continue;
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) ++lines;
  }
  EXPECT_LE(lines, kMostLinesOfTests);
}

TEST(Structure, TheProgramHasItsOwnNamespace) {
  for (const Source& source : sources()) {
    if (top_of(source.path) != "apps") continue;
    EXPECT_EQ(source.namespaces, std::set<std::string>{"focus::app"}) << source.path;
  }
}

}  // namespace
