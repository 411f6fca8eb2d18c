// Ids and texts that the tokenizers' own libraries made, for every case on disk.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "data/files/read_file.h"
#include "data/tokenizers/tokenizer.h"

namespace focus {
namespace {

using Ids = std::vector<std::int32_t>;

std::filesystem::path golden_folder() {
  const char* folder = std::getenv("FOCUS_GOLDEN_DIR");
  return folder != nullptr ? folder : FOCUS_SOURCE_DIR "/tests/golden";
}

std::filesystem::path shared_folder() {
  const char* folder = std::getenv("FOCUS_SHARED_DIR");
  return folder != nullptr ? folder : FOCUS_SOURCE_DIR "/../shared";
}

std::vector<nlohmann::json> read_cases(const std::filesystem::path& path) {
  std::istringstream lines(read_file(path));
  std::vector<nlohmann::json> cases;
  for (std::string line; std::getline(lines, line);) cases.push_back(nlohmann::json::parse(line));
  return cases;
}

void expect_cases(const std::filesystem::path& folder) {
  SCOPED_TRACE(folder.string());
  const auto tokenizer = load_tokenizer(folder);
  const auto cases = read_cases(folder / "cases.jsonl");
  EXPECT_FALSE(cases.empty());
  for (const nlohmann::json& item : cases) {
    const auto text = item.at("text").get<std::string>();
    const auto ids = item.at("ids").get<Ids>();
    EXPECT_EQ(tokenizer->encode(text), ids) << item.at("text").dump();
    EXPECT_EQ(tokenizer->decode(ids), item.at("decoded").get<std::string>())
        << item.at("text").dump();
    if (item.contains("ids_special")) {
      EXPECT_EQ(tokenizer->encode_with_special(text), item["ids_special"].get<Ids>())
          << item.at("text").dump();
    }
  }
}

TEST(GoldenTokenizers, EveryCase) {
  const std::filesystem::path folder = golden_folder() / "tokenizers";
  ASSERT_TRUE(is_directory(folder)) << folder;
  int families = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (!entry.is_directory()) continue;
    ++families;
    expect_cases(entry.path());
  }
  EXPECT_GT(families, 0);
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

TEST_F(PublishedTokenizers, Gpt2) {
  expect_separated_cases(*load_tokenizer(folder_ / "gpt2"), folder_ / "gpt2");
}

TEST_F(PublishedTokenizers, Llama2) {
  expect_separated_cases(*load_tokenizer(folder_ / "llama2"), folder_ / "llama2");
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
  try {
    load_tokenizer(folder_ / "qwen2.5");
    FAIL() << "accepted";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("Qwen2Tokenizer"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace focus
