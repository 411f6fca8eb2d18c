#include "apps/terminal/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "apps/command.h"
#include "data/files/input_file.h"
#include "tests/support/temp_folder.h"

namespace focus::app {
namespace {

/// Runs `use` with a Progress that writes to memory and a clock the test sets; returns the output.
template <class Use>
std::string output_of(ProgressOptions options, Use use) {
  char* text = nullptr;
  std::size_t size = 0;
  options.stream = open_memstream(&text, &size);
  double now = 100;
  options.seconds = [&now] { return now; };
  {
    Progress progress(options);
    use(progress, now);
  }
  std::fclose(options.stream);
  std::string result(text, size);
  std::free(text);
  return result;
}

TEST(Progress, PrintsPlainLinesAtTheInterval) {
  const std::string text = output_of(
      {.label = "train", .total_steps = 25, .seconds_between_lines = 20, .terminal = false},
      [](Progress& progress, double& now) {
        for (int step = 1; step <= 25; ++step) {
          now += 2;
          progress.update(step, 3.0 + step / 100.0, 1000);
        }
      });
  EXPECT_EQ(text,
            "train 10/25 40%  loss 3.1000  500 tok/s  left 30s\n"
            "train 20/25 80%  loss 3.2000  500 tok/s  left 10s\n"
            "train 25/25 100%  loss 3.2500  500 tok/s\n");
}

TEST(Progress, SaysNothingBetweenLinesThatSayMore) {
  const std::string text = output_of({.label = "train", .total_steps = 100, .terminal = false},
                                     [](Progress& progress, double& now) {
                                       for (int step = 1; step <= 60; ++step) {
                                         now += 1;
                                         progress.update(step, NAN, 0);
                                         if (step % 25 == 0) progress.note("a line");
                                       }
                                       now += 20;
                                       progress.update(61, NAN, 0);
                                     });
  EXPECT_EQ(text,
            "a line\n"
            "a line\n"
            "train 61/100 61%  left 51s\n");
}

TEST(Progress, ShowsTheLastStateWhenStoppedEarly) {
  const std::string text =
      output_of({.label = "t", .total_steps = 100, .first_step = 50, .terminal = false},
                [](Progress& progress, double& now) {
                  now += 4;
                  progress.update(52, NAN, 0);
                });
  EXPECT_EQ(text, "t 52/100 52%  left 1m36s  took 4s\n");
}

TEST(Progress, AnInnerOneLeavesNothingAtItsEnd) {
  const auto two_steps = [](Progress& progress, double& now) {
    for (int step = 1; step <= 2; ++step) {
      now += 4;
      progress.update(step, NAN, 0);
    }
  };
  ProgressOptions options{.label = "fit", .total_steps = 2, .inner = true, .terminal = false};
  EXPECT_EQ(output_of(options, two_steps), "");
  options.seconds_between_lines = 3;
  EXPECT_EQ(output_of(options, two_steps), "fit 1/2 50%  left 4s\nfit 2/2 100%\n");
  options.terminal = true;
  EXPECT_TRUE(output_of(options, two_steps).ends_with("100%\x1b[K\r\x1b[K"))
      << output_of(options, two_steps);
}

TEST(Progress, ShowsOnATerminalThatWorkHasBegun) {
  const auto nothing = [](Progress&, double&) {};
  const ProgressOptions options{.label = "reading x", .inner = true, .terminal = true};
  EXPECT_EQ(output_of(options, nothing), "\rreading x\x1b[K\r\x1b[K");
  EXPECT_EQ(output_of({.label = "reading x", .inner = true, .terminal = false}, nothing), "");
}

TEST(Progress, RedrawsOneLineAtMostTenTimesASecond) {
  const std::string text = output_of({.label = "t", .total_steps = 1000, .terminal = true},
                                     [](Progress& progress, double& now) {
                                       for (int step = 1; step <= 1000; ++step) {
                                         now += 0.001;
                                         progress.update(step, 1.0, 10);
                                       }
                                     });
  const auto draws = std::count(text.begin(), text.end(), '\r');
  EXPECT_GE(draws, 8);
  EXPECT_LE(draws, 13);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_TRUE(text.ends_with("\n"));
  EXPECT_NE(text.find("[####################] 1000/1000 100%"), std::string::npos);
}

TEST(Progress, NotesStandOnTheirOwnLine) {
  const std::string text = output_of({.label = "t", .total_steps = 9, .terminal = true},
                                     [](Progress& progress, double& now) {
                                       now += 1;
                                       progress.update(3, 1.0, 10);
                                       progress.note("checkpoint written");
                                     });
  EXPECT_NE(text.find("\r\x1b[Kcheckpoint written\n\rt ["), std::string::npos) << text;
}

/// Looks at the second page of a file that has one no more.
int read_lost_page(const std::filesystem::path& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const MappedFile mapped(descriptor, 8192, path);
  std::filesystem::resize_file(path, 100);
  return std::to_integer<int>(static_cast<const volatile std::byte*>(mapped.bytes().data())[5000]);
}

TEST(LostFile, EndsTheProgramWithALine) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const TempFolder folder;
  write_text(folder / "weights", std::string(8192, 'x'));
  EXPECT_EXIT(
      {
        install_lost_file_signal();
        read_lost_page(folder / "weights");
      },
      testing::ExitedWithCode(1),
      "weights: the file became shorter, or its disk failed, while it was in use; get it again");
}

}  // namespace
}  // namespace focus::app
