#include "data/files/durable_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data/files/checksum.h"
#include "data/files/file_kind.h"
#include "data/files/utf8.h"
#include "tests/support/temp_folder.h"

namespace focus {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

/// Runs it in a child process, which ends without destructors, as in a crash; its status is what
/// `action` returns.
int in_child(const std::function<int()>& action) {
  const pid_t child = fork();
  if (child == 0) _exit(action());
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class DurableFiles : public testing::Test {
 protected:
  const TempFolder folder_;
};

TEST_F(DurableFiles, WritesAndReplaces) {
  write_file_durably(folder_ / "a", std::string_view("one"));
  EXPECT_EQ(read_text(folder_ / "a"), "one");
  write_file_durably(folder_ / "a", std::string_view("second"));
  EXPECT_EQ(read_text(folder_ / "a"), "second");
  write_file_durably(folder_ / "empty", std::string_view());
  EXPECT_EQ(read_text(folder_ / "empty"), "");
  EXPECT_EQ(files_in(folder_.path()), 2u);
}

TEST_F(DurableFiles, WritesIntoTheCurrentFolder) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_.path());
  write_file_durably("plain", std::string_view("x"));
  fs::current_path(before);
  EXPECT_EQ(read_text(folder_ / "plain"), "x");
}

TEST_F(DurableFiles, RefusedByVerifyLeavesTheOldFile) {
  write_file_durably(folder_ / "a", std::string_view("old"));
  const std::string error = error_of([&] {
    DurableFile file(folder_ / "a");
    FileWriter writer(file);
    writer.write(std::as_bytes(std::span(std::string_view("new"))));
    writer.close();
    file.commit([](const fs::path& written) {
      EXPECT_EQ(read_text(written), "new");
      throw std::runtime_error("not good");
    });
  });
  EXPECT_EQ(error, "not good");
  EXPECT_EQ(read_text(folder_ / "a"), "old");
  EXPECT_EQ(files_in(folder_.path()), 1u);
}

TEST_F(DurableFiles, AbandonedLeavesNothing) {
  {
    DurableFile file(folder_ / "a");
    write_text(file.temporary(), "half");
    EXPECT_EQ(files_in(folder_.path()), 1u);
  }
  EXPECT_EQ(files_in(folder_.path()), 0u);
}

TEST_F(DurableFiles, NamesPathAndReasonAndRemedy) {
  write_text(folder_ / "file", "");
  const auto error = [](const fs::path& path) {
    return error_of([&] { write_file_durably(path, std::string_view("x")); });
  };
  EXPECT_THAT(error(folder_ / "file/a"), HasSubstr("file/a: Not a directory; a part of the path"));
  EXPECT_THAT(error(folder_ / "gone/a"),
              HasSubstr("gone/a: No such file or directory; the folder does not exist"));
  EXPECT_THAT(error(folder_.path()), HasSubstr("Is a directory"));
  EXPECT_THAT(error("/dev/null"), HasSubstr("/dev/null: it is not a regular file"));
  EXPECT_THAT(error("/proc/focus"), HasSubstr("cannot write /proc/focus"));
  EXPECT_THAT(error(folder_ / std::string(300, 'n')), HasSubstr("the name is too long"));
}

TEST_F(DurableFiles, FailingWriteKeepsTheOldFile) {
  write_file_durably(folder_ / "a", std::string_view("old"));
  // In a child, because the limit holds for the whole process.
  const int status = in_child([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};
    setrlimit(RLIMIT_FSIZE, &limit);
    const std::string error =
        error_of([&] { write_file_durably(folder_ / "a", std::string(100'000, 'x')); });
    return error.find("a: File too large; ") == std::string::npos ? 1 : 0;
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read_text(folder_ / "a"), "old");
  EXPECT_EQ(files_in(folder_.path()), 1u);
}

TEST_F(DurableFiles, SweepRemovesWhatDeadProcessesLeft) {
  in_child([&]() -> int {
    DurableFile file(folder_ / "a");
    write_text(file.temporary(), "half");
    _exit(0);
  });
  // A file of an earlier process that had our number, one of ours, and some that only look alike.
  write_text(folder_ / fmt::format(".b.focus-tmp-{}-0123456789abcdef-7", getpid()), "");
  DurableFile mine(folder_ / "mine");
  write_text(mine.temporary(), "");
  for (const char* name :
       {"a.focus-tmp-1-2-3", ".focus-tmp-", ".a.focus-tmp-x-2-3", ".a.focus-tmp-1",
        ".a.focus-tmp-99999999-ab", ".a.focus-tmp-99999999-ab-c"}) {
    write_text(folder_ / name, "");
  }
  EXPECT_EQ(files_in(folder_.path()), 9u);
  EXPECT_EQ(sweep_orphans(folder_.path()), 2u);
  EXPECT_EQ(files_in(folder_.path()), 7u);
  EXPECT_TRUE(fs::exists(mine.temporary()));
  EXPECT_THAT(error_of([&] { sweep_orphans(folder_ / "gone"); }), HasSubstr("list"));
}

TEST_F(DurableFiles, SweepKnowsAProcessThatEndedAndThatNobodyAskedAfter) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(0);
  write_text(folder_ / fmt::format(".a.focus-tmp-{}-0123456789abcdef-0", child), "half");
  siginfo_t ended;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(kill(child, 0), 0) << "it still has its number";
  EXPECT_EQ(sweep_orphans(folder_.path()), 1u);
  waitpid(child, nullptr, 0);
}

TEST(Checksum, KnownValuesAndStreaming) {
  // What `xxh128sum` prints.
  EXPECT_EQ(xxh3_hex({}), "99aa06d3014798d86001c324468d497f");
  const std::string text(100'000, 'q');
  const auto bytes = std::as_bytes(std::span(text));
  Checksum checksum;
  checksum.update(bytes.first(1));
  checksum.update(bytes.subspan(1, 50'000));
  checksum.update(bytes.subspan(50'001));
  EXPECT_EQ(checksum.hex(), xxh3_hex(bytes));
  EXPECT_NE(checksum.hex(), xxh3_hex(bytes.first(99'999)));
  const TempFolder folder;
  write_text(folder / "a", text);
  EXPECT_EQ(xxh3_file_hex(folder / "a"), checksum.hex());
  EXPECT_THAT(error_of([&] { xxh3_file_hex(folder / "b"); }), HasSubstr("cannot read"));
  EXPECT_THAT(error_of([&] { xxh3_file_hex(folder.path()); }), HasSubstr("cannot read"));
}

TEST(FileKind, TextsThatBeginAsOtherFilesDoAreText) {
  for (const char* text : {"PAR1 is a line", "GGUF is a format of files", "BZh", "%PDF-1.7 begins",
                           "", "a", "\uFEFFa mark", "Rar!"})
    EXPECT_NO_THROW(require_text(text, "a.txt")) << text;
}

TEST(FileKind, PointersOfGitLfs) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d\n";
  EXPECT_THAT(error_of([&] { refuse_lfs_pointer(pointer, "a/model.safetensors"); }),
              HasSubstr("a/model.safetensors: is a Git LFS pointer"));
  EXPECT_NO_THROW(refuse_lfs_pointer("version 1", "a"));
}

TEST(Utf8, ReplacesEachMaximalPartOnce) {
  const std::string mark = "\xEF\xBF\xBD";
  EXPECT_EQ(replace_invalid_utf8("a\x80z"), "a" + mark + "z");
  EXPECT_EQ(replace_invalid_utf8("\xE2\x82z"), mark + "z");             // cut short
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x92"), mark);                // cut short by the end
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF"), mark + mark);             // overlong
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), mark + mark + mark);  // surrogate
  EXPECT_EQ(replace_invalid_utf8("\xF4\x90\x80\x80").size(), 4 * mark.size());  // too large
  EXPECT_EQ(replace_invalid_utf8("\xC3\xA9\xF0\x9F\x98\x80"), "\xC3\xA9\xF0\x9F\x98\x80");
}

}  // namespace
}  // namespace focus
