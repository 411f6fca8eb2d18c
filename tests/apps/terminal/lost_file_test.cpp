#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "apps/command.h"
#include "data/files/mapped_file.h"
#include "tests/support/temp_folder.h"

namespace focus::app {
namespace {

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
