// Ids and texts that the tokenizers' own libraries made, for every case on disk.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "data/files/input_file.h"
#include "data/gguf/gguf.h"
#include "data/gguf/gguf_tokenizer.h"
#include "tests/support/golden_folders.h"
#include "tests/support/temp_folder.h"

namespace focus {
namespace {

using Ids = std::vector<std::int32_t>;

/// What a file of cases says, which may leave the ids with special tokens out; how many have them.
int expect_cases(const Tokenizer& tokenizer, const std::filesystem::path& path) {
  SCOPED_TRACE(path.string());
  std::istringstream lines(read_file(path));
  int cases = 0, special = 0;
  for (std::string line; std::getline(lines, line); ++cases) {
    const auto item = nlohmann::json::parse(line);
    const auto text = item.at("text").get<std::string>();
    const auto ids = item.at("ids").get<Ids>();
    EXPECT_EQ(tokenizer.encode(text), ids) << item.at("text").dump();
    EXPECT_EQ(tokenizer.decode(ids), item.at("decoded").get<std::string>())
        << item.at("text").dump();
    if (item.contains("ids_special")) {
      ++special;
      EXPECT_EQ(tokenizer.encode_with_special(text), item["ids_special"].get<Ids>())
          << item.at("text").dump();
    }
  }
  EXPECT_GT(cases, 0);
  return special;
}

TEST(GoldenTokenizers, EveryCase) {
  int families = 0;
  for (const auto& entry : std::filesystem::directory_iterator(golden_folder() / "tokenizers")) {
    if (!entry.is_directory()) continue;
    ++families;
    expect_cases(*load_tokenizer(entry.path()), entry.path() / "cases.jsonl");
  }
  EXPECT_GT(families, 0);
}

/// NAME.cases.jsonl lies beside NAME.gguf.
TEST(GoldenTokenizers, EveryCaseOfGgufFiles) {
  const auto files = golden_gguf_files(".cases.jsonl");
  EXPECT_FALSE(files.empty());
  for (const std::filesystem::path& path : files) {
    const std::string name = path.filename().string();
    const auto gguf = path.parent_path() / (name.substr(0, name.find('.')) + ".gguf");
    const auto tokenizer = tokenizer_of(GgufSource(gguf).metadata());
    ASSERT_TRUE(tokenizer) << gguf;
    EXPECT_GT(expect_cases(*tokenizer, path), 40);
    // The files that it was made from are all that it is.
    const auto again = make_tokenizer(tokenizer->kind(), tokenizer->files());
    EXPECT_EQ(again->fingerprint(), tokenizer->fingerprint());
    expect_cases(*again, path);
  }
}

/// The strings of a cases.inp and their ids in cases.out, which holds a line of ids for each.
void expect_separated_cases(const Tokenizer& tokenizer, const std::filesystem::path& folder) {
  constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";
  const std::string input = read_file(folder / "cases.inp");
  std::istringstream answers(read_file(folder / "cases.out"));
  std::string answer;
  int cases = 0;
  std::size_t begin = 0;
  while (begin < input.size() && std::getline(answers, answer)) {
    const std::size_t end = std::min(input.find(kSeparator, begin), input.size());
    const std::string_view text = std::string_view(input).substr(begin, end - begin);
    std::istringstream numbers(answer);
    const Ids ids((std::istream_iterator<std::int32_t>(numbers)), {});
    EXPECT_EQ(tokenizer.encode(text), ids) << folder << ": " << text;
    begin = end + kSeparator.size();
    ++cases;
  }
  EXPECT_GT(cases, 40) << folder;
  EXPECT_GE(begin, input.size()) << folder << ": fewer answers than strings";
}

class PublishedTokenizers : public testing::Test {
 protected:
  void SetUp() override {
    if (!is_directory(folder_)) GTEST_SKIP() << "no " << folder_ << ": set FOCUS_SHARED_DIR";
  }
  const std::filesystem::path folder_ = shared_folder() / "data" / "tokenizers";
};

TEST_F(PublishedTokenizers, Gpt2AndLlama2) {
  for (const char* name : {"gpt2", "llama2"})
    expect_separated_cases(*load_tokenizer(folder_ / name), folder_ / name);
}

TEST_F(PublishedTokenizers, Qwen25) {
  const std::filesystem::path folder = folder_ / "qwen2.5";
  const auto tokenizer = load_tokenizer(folder / "tokenizer.json.xz");
  expect_separated_cases(*tokenizer, folder);
  EXPECT_EQ(tokenizer->bos_id(), std::nullopt);
  EXPECT_EQ(tokenizer->eos_id(), 151645);
  EXPECT_EQ(tokenizer->vocab_size(), 151665);
}

TEST_F(PublishedTokenizers, Qwen25VocabularyAloneIsRefused) {
  // vocab.json and merges.txt do not say how Qwen splits text, and it is not as GPT-2 does.
  const std::string error = error_of([&] { load_tokenizer(folder_ / "qwen2.5"); });
  EXPECT_NE(error.find("Qwen2Tokenizer"), std::string::npos) << error;
}

}  // namespace
}  // namespace focus
