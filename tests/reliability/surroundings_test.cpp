#include <unistd.h>

#include "tests/reliability/jobs.h"

// Where a command runs: in a folder that nobody may write to, beside a /tmp that is full, in a
// language whose numbers have a comma.
namespace focus {
namespace {

/// A shell that mounts what `script` says, seen by itself alone, and then becomes the command.
Words with_mounts(const std::string& script) {
  return {"/usr/bin/unshare", "-m", "/bin/sh", "-e", "-c", script + "\nexec \"$@\"", "sh"};
}

/// An empty folder that nobody may write to.
Words with_read_only(const std::string& folder) {
  fs::create_directory(folder);
  return with_mounts("mount -t tmpfs -o ro tmpfs '" + folder + "'");
}

bool may_mount() {
  static const bool may = [] {
    const std::string there = cli().fresh("mounted");
    fs::create_directory(there);
    Words words = with_mounts("mount -t tmpfs -o size=64k tmpfs '" + there + "'");
    words.emplace_back("/bin/true");
    return access(words[0].c_str(), X_OK) == 0 && Process(words, {}).wait(kRunSeconds).status == 0;
  }();
  return may;
}
#define SKIP_WITHOUT_MOUNTS() \
  if (!may_mount()) GTEST_SKIP() << "nobody here may mount a file system"

class Surroundings : public Disturbed {
 protected:
  static ProcessResult run_by(const Words& launcher, const Words& command) {
    return cli().start_by(launcher, command, {})->wait(kRunSeconds);
  }

  /// One line, which names `path`.
  static void expect_one_line(const ProcessResult& result, const std::string& path) {
    EXPECT_EQ(result.status, 1) << result.err;
    ASSERT_FALSE(lines_of(result.err).empty());
    const std::string line = lines_of(result.err).back();
    EXPECT_TRUE(line.starts_with("focus " + GetParam().command("out").front())) << result.err;
    EXPECT_TRUE(contains(line, path) && contains(line, "Read-only file system")) << result.err;
  }
};

TEST_P(Surroundings, MayForbidToWrite) {
  SKIP_WITHOUT_MOUNTS();
  const Job& job = GetParam();
  static_cast<void>(whole());  // with it, what the command reads
  const std::string parent = cli().fresh("read_only"), out = parent + "/out" + job.ending;
  expect_one_line(run_by(with_read_only(parent), job.command(out)), parent);
  EXPECT_TRUE(fs::is_empty(parent));
}

TEST_P(Surroundings, MayHaveAFullTmp) {
  SKIP_WITHOUT_MOUNTS();
  const Job& job = GetParam();
  static_cast<void>(whole());
  const std::string out = cli().fresh("out" + job.ending),
                    folder = fs::path(out).parent_path().string();
  // Our own folder and the program's, which may lie in /tmp, are put back into the full one.
  const Words full = with_mounts(fmt::format(R"(exec 8<'{0}' 9<'{1}'
mount -t tmpfs -o size=16k tmpfs /tmp
mkdir -p '{0}' '{1}'
mount -c --bind /proc/self/fd/8 '{0}'
mount -c --bind /proc/self/fd/9 '{1}'
exec 8<&- 9<&-
export TMPDIR=/tmp
head -c 100000 /dev/zero >/tmp/filler 2>/dev/null && exit 3)",
                                             folder, FOCUS_BINARY_DIR));
  const ProcessResult result = run_by(full, job.command(out));
  ASSERT_EQ(result.status, 0) << result.err;
  expect_whole(out);
  expect_nothing_left_over(out);
}

TEST_P(Surroundings, MayWriteADecimalComma) {
  static const std::string languages = [] {
    std::string folder = cli().fresh("languages");
    fs::create_directory(folder);
    Process({"/usr/bin/localedef", "-i", "de_DE", "-f", "UTF-8", folder + "/de_DE.UTF-8"}, {})
        .wait(kRunSeconds);
    return folder;
  }();
  if (fs::is_empty(languages)) GTEST_SKIP() << "no German numbers here (package locales)";
  const Words german = {"/usr/bin/env", "LOCPATH=" + languages, "LC_ALL=de_DE.UTF-8"};
  ASSERT_EQ(Process(german + Words{"/usr/bin/printf", "%.1f", "2,5"}, {}).wait(kRunSeconds).out,
            "2,5");
  const Job& job = GetParam();
  const std::string out = cli().fresh("german" + job.ending);
  const ProcessResult result = run_by(german, job.command(out));
  ASSERT_EQ(result.status, 0) << result.err;
  expect_whole(out);
}

INSTANTIATE_TEST_SUITE_P(Reliability, Surroundings, testing::ValuesIn(jobs()),
                         [](const auto& test) { return test.param.name; });

TEST(Cache, OfTokensThatMayNotBeWrittenIsNamed) {
  SKIP_WITHOUT_MOUNTS();
  const std::string cache = cli().fresh("read_only"), out = cli().fresh("out");
  const ProcessResult result =
      cli()
          .start_by(with_read_only(cache), train(out) + Words{"data.cache_dir=" + cache + "/new"},
                    {})
          ->wait(kRunSeconds);
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_TRUE(contains(lines_of(result.err).back(), cache + "/new")) << result.err;
}

}  // namespace
}  // namespace focus
