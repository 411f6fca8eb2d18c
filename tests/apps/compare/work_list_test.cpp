#include "apps/compare/work_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <numeric>
#include <vector>

#include "tests/support/temp_folder.h"
#include "tests/support/thread_ranks.h"

namespace focus::app {
namespace {

TEST(WorkList, EachPieceIsTakenOnceWhateverAJobBeforeHasLeft) {
  const TempFolder folder;
  std::vector<std::size_t> wanted(20);
  std::iota(wanted.begin(), wanted.end(), std::size_t{0});
  std::filesystem::create_directories(folder / "taken" / "3");
  for (const int count : {1, 2, 5}) {
    std::mutex mutex;
    std::vector<std::size_t> taken;
    const auto work = [&](Ranks& ranks) {
      WorkList list(folder / "taken", wanted.size(), ranks);
      while (const auto piece = list.take()) {
        const std::lock_guard lock(mutex);
        taken.push_back(*piece);
      }
      list.finish();
    };
    if (count == 1)
      work(one_process());
    else
      ThreadRanks::run(count, work);
    std::ranges::sort(taken);
    EXPECT_EQ(taken, wanted) << count;
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "taken"));
}

}  // namespace
}  // namespace focus::app
