// Ids and texts that tokenizers and SentencePiece made, by the tokenizers of the GGUF files beside
// them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "data/files/read_file.h"
#include "data/gguf/gguf.h"
#include "data/gguf/gguf_tokenizer.h"

namespace focus {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<std::int32_t>;

fs::path folder_of(const char* variable, const char* otherwise) {
  const char* folder = std::getenv(variable);
  return folder != nullptr ? folder : otherwise;
}

/// Every NAME.cases.jsonl with a NAME.gguf beside it.
std::vector<fs::path> cases_files() {
  std::vector<fs::path> found;
  for (const fs::path& folder :
       {folder_of("FOCUS_GOLDEN_DIR", FOCUS_SOURCE_DIR "/tests/golden") / "gguf",
        folder_of("FOCUS_SHARED_DIR", FOCUS_SOURCE_DIR "/../shared") / "golden/gguf"}) {
    if (!fs::is_directory(folder)) continue;
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.path().filename().string().ends_with(".cases.jsonl")) found.push_back(entry);
  }
  return found;
}

void expect_cases(const Tokenizer& tokenizer, const fs::path& path) {
  SCOPED_TRACE(path.string());
  std::istringstream lines(read_file(path));
  int cases = 0;
  for (std::string line; std::getline(lines, line); ++cases) {
    const auto item = nlohmann::json::parse(line);
    const auto text = item.at("text").get<std::string>();
    const auto ids = item.at("ids").get<Ids>();
    EXPECT_EQ(tokenizer.encode(text), ids) << item.at("text").dump();
    EXPECT_EQ(tokenizer.encode_with_special(text), item.at("ids_special").get<Ids>())
        << item.at("text").dump();
    EXPECT_EQ(tokenizer.decode(ids), item.at("decoded").get<std::string>())
        << item.at("text").dump();
  }
  EXPECT_GT(cases, 40);
}

TEST(GoldenGgufTokenizers, EveryCase) {
  const std::vector<fs::path> files = cases_files();
  if (files.empty()) GTEST_SKIP() << "no golden/gguf here";
  for (const fs::path& path : files) {
    const std::string name = path.filename().string();
    const fs::path gguf = path.parent_path() / (name.substr(0, name.find('.')) + ".gguf");
    const auto tokenizer = tokenizer_of(GgufSource(gguf).metadata());
    ASSERT_TRUE(tokenizer) << gguf;
    expect_cases(*tokenizer, path);
    // The files that it was made from are all that it is.
    const auto again = make_tokenizer(tokenizer->kind(), tokenizer->files());
    EXPECT_EQ(again->fingerprint(), tokenizer->fingerprint());
    expect_cases(*again, path);
  }
}

}  // namespace
}  // namespace focus
