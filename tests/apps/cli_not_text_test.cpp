#include "tests/support/cli.h"

// What is no UTF-8 text is called by its name, and what editors put around a prompt is no part of
// it.
namespace focus {
namespace {

using namespace std::string_literals;

std::string file_of(const std::string& name, const std::string& bytes) {
  const std::string path = cli().fresh(name);
  write_text(path, bytes);
  return path;
}

/// A text in UTF-16 with a mark.
std::string utf16(const std::string& ascii) {
  std::string bytes = "\xFF\xFE";
  for (const char c : ascii) bytes += {c, '\0'};
  return bytes;
}

TEST(CliNotText, FilesOfOtherKindsAreRefused) {
  const std::string rest = std::string(40, '\x9C');
  const std::string text = read_text(cli().valid_text());
  for (const auto& [bytes, what] : {std::pair(utf16(text), "UTF-16"),
                                    {utf16(text).substr(2), "UTF-16"},
                                    {"PK\x03\x04" + rest, "zip"},
                                    {"PAR1" + rest + "PAR1", "parquet"}}) {
    const std::string path = file_of("text.txt", bytes);
    const Words parts = {path, "UTF-8", what};
    expect_refused({"eval", cli().base(), "--text", path}, parts);
    expect_refused({"generate", cli().base(), "--prompt-file", path}, parts);
    expect_refused({"tokenizer", "encode", "bytes", "--text", path}, parts);
    expect_refused({"tokenizer", "train", "--text", path, "--out", cli().fresh("tok")}, parts);
    expect_refused({"score", cli().base(), "--requests", path, "--out", cli().fresh("s")}, parts);
    expect_refused({"fit", cli().base(), "--text", path, "--out", cli().fresh("k.h5")}, parts);
    expect_refused(cli().retrofit({"data.train=" + path, "out=" + cli().fresh("run")}), parts);
  }
}

TEST(CliNotText, PackedFilesThatAreDamagedAreRefused) {
  const std::string rest = std::string(40, '\x9C');
  for (const std::string& bytes : {"\x1F\x8B\x08\0"s + rest, "\x28\xB5\x2F\xFD" + rest}) {
    const Words parts = {"cannot unpack " + file_of("text.txt", bytes), "fetch the file again"};
    expect_refused({"eval", cli().base(), "--text", parts[0].substr(14)}, parts);
  }
}

TEST(CliNotText, AnotherEncodingIsRefused) {
  std::string text;
  for (int i = 0; i < 20; ++i) text += "El ni\xF1o comi\xF3. ";
  const std::string path = file_of("latin1.txt", text);
  expect_refused({"eval", cli().base(), "--text", path}, {path, "UTF-8", "iconv"});
}

TEST(CliNotText, OtherBytesAreTold) {
  std::string latin1 = read_text(cli().valid_text());
  latin1[10] = latin1[20] = '\xE9';
  const std::string path = file_of("latin1.txt", latin1);
  const ProcessResult result = cli().must_run(
      {"eval", cli().base(), "--text", path, "--context", "64", "--attention", "dense"});
  EXPECT_TRUE(contains(result.err, path + ": not UTF-8 in 2 places, the first at byte 10"))
      << result.err;
}

TEST(CliNotText, APromptIsWithoutTheMarksOfItsFile) {
  const auto ids = [](const Words& prompt) {
    return cli()
        .figures(Words{"generate", cli().base(), "--max-new-tokens", "8"} + prompt)
        .at("prompt_tokens");
  };
  const auto plain = ids({"--prompt", "Once upon"});
  for (const char* text : {"Once upon", "Once upon\n", "Once upon\r\n", "\xEF\xBB\xBFOnce upon",
                           "\xEF\xBB\xBFOnce upon\n"}) {
    const std::string path = file_of("prompt.txt", text);
    EXPECT_EQ(ids({"--prompt-file", path}), plain) << text;
  }
  // One line break is the file's, a second one the text's.
  EXPECT_EQ(ids({"--prompt-file", file_of("prompt.txt", "Once upon\n\n")}).get<int>(),
            plain.get<int>() + 1);
}

}  // namespace
}  // namespace focus
