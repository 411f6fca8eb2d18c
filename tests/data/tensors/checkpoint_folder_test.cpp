#include "data/tensors/checkpoint_folder.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "autograd/base/random.h"
#include "data/tensors/store.h"
#include "tests/support/temp_folder.h"

namespace focus {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

void save(CheckpointFolder& checkpoints, std::int64_t step, Index numbers = 10) {
  StoreWriter writer(checkpoints.path_for(step), "training");
  writer.attribute("/train", "step", step);
  writer.tensor("/model/a", Tensor::full({numbers}, static_cast<Real>(step)));
  writer.commit();
  checkpoints.publish(step);
}

TEST(CheckpointFolder, KeepsTheNewest) {
  const TempFolder folder;
  CheckpointFolder checkpoints(folder / "run/checkpoints", 2);
  EXPECT_FALSE(checkpoints.latest());
  EXPECT_EQ(checkpoints.path_for(120), folder / "run/checkpoints/step_000120.h5");
  for (const std::int64_t step : {10, 20, 30, 40, 1'234'567}) save(checkpoints, step);
  EXPECT_FALSE(fs::exists(checkpoints.path_for(10)));
  EXPECT_FALSE(fs::exists(checkpoints.path_for(30)));
  EXPECT_TRUE(fs::exists(checkpoints.path_for(40)));
  EXPECT_EQ(checkpoints.latest(), checkpoints.path_for(1'234'567));
  EXPECT_EQ(read_text(checkpoints.path() / "latest"), "step_1234567.h5\n");
  EXPECT_EQ(files_in(checkpoints.path()), 3u);  // two checkpoints and latest
}

TEST(CheckpointFolder, NewerOnesOfAnAbandonedRunStay) {
  const TempFolder folder;
  CheckpointFolder checkpoints(folder.path(), 1);
  save(checkpoints, 50);
  save(checkpoints, 20);
  EXPECT_EQ(checkpoints.latest(), checkpoints.path_for(20));
  EXPECT_TRUE(fs::exists(checkpoints.path_for(50)));
}

TEST(CheckpointFolder, FallsBackToTheNewestThatIsSound) {
  const TempFolder folder;
  CheckpointFolder checkpoints(folder.path(), 5);
  for (const std::int64_t step : {1, 2, 3}) save(checkpoints, step, 1000);
  fs::remove(folder / "latest");
  EXPECT_EQ(checkpoints.latest(), checkpoints.path_for(3));
  for (const char* text :
       {"", "step_000009.h5\n", "../step_000001.h5\n", "/etc/passwd\n", "step_1.h5"}) {
    write_text(folder / "latest", text);
    EXPECT_EQ(checkpoints.latest(), checkpoints.path_for(3)) << text;
  }
  write_text(folder / "latest", "step_000002.h5\n");
  EXPECT_EQ(checkpoints.latest(), checkpoints.path_for(2));
  // A bit of the data: only verifying finds it.
  const std::string bytes = read_text(checkpoints.path_for(2));
  const Tensor values = Tensor::full({1000}, 2);
  const std::size_t at =
      bytes.find(std::string_view(reinterpret_cast<const char*>(values.data()), 400));
  ASSERT_NE(at, std::string::npos);
  flip_bit(checkpoints.path_for(2), 8 * (at + 500));
  EXPECT_EQ(checkpoints.latest(), checkpoints.path_for(3));
  fs::resize_file(checkpoints.path_for(3), 1000);
  EXPECT_EQ(checkpoints.latest(), checkpoints.path_for(1));
  write_text(checkpoints.path_for(1), "");
  EXPECT_THAT(error_of([&] { checkpoints.latest(); }),
              HasSubstr("none of its 3 checkpoints can be read"));
}

TEST(CheckpointFolder, RefusesWrongUse) {
  const TempFolder folder;
  EXPECT_THAT(error_of([&] { CheckpointFolder(folder.path(), 0); }), HasSubstr("at least 1"));
  write_text(folder / "file", "");
  EXPECT_THAT(error_of([&] { CheckpointFolder(folder / "file", 1); }), HasSubstr("file"));
  EXPECT_THAT(error_of([&] { CheckpointFolder(folder / "file/run", 1); }),
              HasSubstr("Not a directory"));
  CheckpointFolder checkpoints(folder.path(), 1);
  EXPECT_THAT(error_of([&] { checkpoints.publish(5); }), HasSubstr("commit it before"));
  EXPECT_THAT(error_of([&] { checkpoints.path_for(-1); }), HasSubstr("no step -1"));
}

/// A process that saves without end is killed at any moment; what it leaves must always do.
TEST(CheckpointFolder, SurvivesKill) {
  const TempFolder folder;
  Rng rng(7);
  std::int64_t last = -1;
  for (int round = 0; round < 30; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      CheckpointFolder checkpoints(folder.path(), 2);
      for (std::int64_t step = last + 1;; ++step) save(checkpoints, step, 2'000'000 / sizeof(Real));
    }
    // Mostly in the middle of things; the first one is given time to save at all.
    usleep(round == 0 ? 400'000 : static_cast<useconds_t>(rng.below(60'000)));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);

    CheckpointFolder checkpoints(folder.path(), 2);
    for (const auto& entry : fs::directory_iterator(folder.path())) {
      ASSERT_NE(entry.path().filename().string()[0], '.') << "an orphan: " << entry.path();
    }
    const auto latest = checkpoints.latest();
    ASSERT_TRUE(latest.has_value()) << "round " << round;
    const StoreReader store(*latest);
    store.verify();
    const std::int64_t step = store.int_attribute("/train", "step");
    EXPECT_GE(step, last);
    EXPECT_EQ(store.tensor("/model/a")[0], static_cast<Real>(step));
    last = step;
  }
  EXPECT_GT(last, 0);
}

}  // namespace
}  // namespace focus
