#include "tests/support/cli.h"

// focus tokenizer: a BPE of one's own, what the other commands do with it, and what is refused.
namespace focus {
namespace {

std::string trained_tokenizer() {
  static const std::string folder = [] {
    const std::string out = cli().fresh("tokenizer");
    cli().must_run(
        {"tokenizer", "train", "--text", cli().train_text(), "--vocab-size", "300", "--out", out});
    return out;
  }();
  return folder;
}

TEST(CliTokenizer, TrainsEncodesAndDecodes) {
  EXPECT_TRUE(fs::exists(trained_tokenizer() + "/tokenizer.json"));
  EXPECT_TRUE(fs::exists(trained_tokenizer() + "/tokenizer_config.json"));
  const auto encoded =
      cli().must_run({"tokenizer", "encode", trained_tokenizer(), "--text", cli().valid_text()});
  const std::string ids = cli().fresh("ids.txt");
  write_text(ids, encoded.out);
  EXPECT_LT(std::ranges::count(encoded.out, ' '), 600);  // of 700 bytes
  const auto decoded = cli().must_run({"tokenizer", "decode", trained_tokenizer(), "--ids", ids});
  EXPECT_EQ(decoded.out, read_text(cli().valid_text()));
}

TEST(CliTokenizer, TheSameBytesEveryTimeAndOneFileWhereOneIsNamed) {
  const std::string file = cli().fresh("own.json");
  cli().must_run(
      {"tokenizer", "train", "--text", cli().train_text(), "--vocab-size", "300", "--out", file});
  EXPECT_EQ(read_text(file), read_text(trained_tokenizer() + "/tokenizer.json"));
}

TEST(CliTokenizer, AConfigTakesIt) {
  const std::string out = cli().fresh("run");
  cli().must_run(cli().scratch({"out=" + out, "tokenizer=" + trained_tokenizer(), "steps=2"}));
  const auto info = cli().figures({"info", out + "/model.h5"});
  EXPECT_EQ(info.at("vocab_size"), 300);
  EXPECT_EQ(info.at("tokenizer"), "tokenizer.json");
}

TEST(CliTokenizer, RefusesInOneLineAndWritesNothing) {
  const std::string out = cli().fresh("none"), text = cli().train_text();
  const auto train_refused = [&](const Words& more, const Words& parts) {
    expect_refused(Words{"tokenizer", "train", "--out", out} + more, parts);
    EXPECT_FALSE(fs::exists(out));
  };
  train_refused({"--text", text, "--vocab-size", "100"}, {"100", "257"});
  train_refused({"--text", out + ".txt"}, {out + ".txt", "no such text file"});
  const std::string blank = cli().fresh("blank.txt");
  write_text(blank, " \n<|endoftext|>\n");
  const auto nothing =
      cli().run({"tokenizer", "train", "--out", out, "--text", blank});  // after its progress
  EXPECT_EQ(nothing.status, 1);
  EXPECT_TRUE(contains(lines_of(nothing.err).back(), "nothing to train on")) << nothing.err;
  EXPECT_FALSE(fs::exists(out));
  const std::string before = read_text(trained_tokenizer() + "/tokenizer.json");
  expect_refused({"tokenizer", "train", "--text", text, "--out", trained_tokenizer()},
                 {"exists already", "--overwrite"});
  EXPECT_EQ(read_text(trained_tokenizer() + "/tokenizer.json"), before);
  const std::string ids = cli().fresh("ids.txt");
  write_text(ids, "1 2 x3");
  expect_refused({"tokenizer", "decode", trained_tokenizer(), "--ids", ids},
                 {"whole numbers", "\"x3\""});
  write_text(ids, "1 300");
  expect_refused({"tokenizer", "decode", trained_tokenizer(), "--ids", ids}, {"300", "vocabulary"});
}

}  // namespace
}  // namespace focus
