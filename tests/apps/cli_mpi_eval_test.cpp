#include "tests/support/launcher.h"

// Several processes that share an evaluation print and write what one process does.
namespace focus {
namespace {

/// What a command printed, without the tokens in a second of tables of perplexities.
std::string without_rates(const std::string& out) {
  std::string kept;
  constexpr std::size_t kWidth = 8;
  std::size_t end = 0;  // of the column tok/s; 0 outside the table
  for (std::string line : lines_of(out)) {
    if (line.starts_with("attention ") && contains(line, "tok/s")) end = line.find("tok/s") + 5;
    if (line.empty()) end = 0;
    if (end > kWidth && line.size() > end) line.erase(end - kWidth, kWidth);
    kept += line + "\n";
  }
  return kept;
}

void expect_same_evaluation(const Words& command, const Words& files) {
  const auto with_files = [&](std::vector<std::string>& paths) {
    Words words = command;
    for (const std::string& file : files) {
      paths.push_back(cli().fresh("figures." + file));
      words.insert(words.end(), {"--" + file, paths.back()});
    }
    return words;
  };
  std::vector<std::string> wanted;
  const ProcessResult alone = cli().must_run(with_files(wanted));
  for (const int count : {1, 2, 3, 4}) {
    SCOPED_TRACE(fmt::format("{} processes", count));
    std::vector<std::string> paths;
    const ProcessResult together = must_run_together(count, with_files(paths));
    EXPECT_EQ(without_rates(together.out), without_rates(alone.out));
    for (std::size_t i = 0; i < files.size(); ++i)
      EXPECT_TRUE(read_text(paths[i]) == read_text(wanted[i])) << files[i];
  }
}

TEST(SharedEvaluation, WindowsHaveTheFiguresOfOneProcess) {
  SKIP_WITHOUT_LAUNCHER();
  expect_same_evaluation(
      {"eval", cli().base(), "--adapter", cli().adapter(), "--text", cli().train_text(),
       cli().valid_text(), "--context", "32", "--stride", "2", "--against-dense", "--far", "8",
       "--attention", "dense,soft,hard:1,window:6", "--recall", "recall:documents=3:keys=3",
       "--beyond-positions"},
      {"json", "html"});
}

TEST(SharedEvaluation, WhatIsWrongIsToldOnceAndNamesTheProcess) {
  SKIP_WITHOUT_LAUNCHER();
  const std::string missing = cli().fresh("none.txt");
  const ProcessResult result = run_together(3, {"eval", cli().base(), "--text", missing});
  EXPECT_NE(result.status, 0);
  const Words lines = lines_of(result.err);
  EXPECT_EQ(std::ranges::count_if(
                lines, [](const std::string& line) { return line.starts_with("focus eval: "); }),
            1)
      << result.err;
  EXPECT_TRUE(contains(result.err, "focus eval: process 0 of 3: " + missing)) << result.err;
}

}  // namespace
}  // namespace focus
