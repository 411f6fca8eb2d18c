#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>
#include <vector>

#include "autograd/base/memory.h"
#include "tests/support/temp_folder.h"

namespace focus {
namespace {

/// A file that is mapped.
class Mapped {
 public:
  Mapped(const std::filesystem::path& path, std::size_t bytes) : bytes_(bytes) {
    std::ofstream(path) << std::string(bytes, 'x');
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    fsync(file);
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);  // a file in memory alone stays there
    data_ = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
    close(file);
  }
  ~Mapped() { munmap(data_, bytes_); }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;

  const char* data() const { return static_cast<const char*>(data_); }
  bool in_memory() const {
    std::vector<unsigned char> in(bytes_ / 4096);
    mincore(data_, bytes_, in.data());
    return std::ranges::all_of(in, [](unsigned char page) { return (page & 1) != 0; });
  }
  /// Whether the whole file comes into memory within two seconds: the disk works on its own.
  bool comes_into_memory() const {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    while (!in_memory() && std::chrono::steady_clock::now() < give_up)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return in_memory();
  }
  /// What read_ahead() asks of the system, from here, in steps that systems take whole.
  void ask() const {
    constexpr std::size_t kStep = std::size_t{1} << 20;
    for (std::size_t at = 0; at < bytes_; at += kStep)
      madvise(static_cast<char*>(data_) + at, std::min(kStep, bytes_ - at), MADV_WILLNEED);
  }

 private:
  std::size_t bytes_;
  void* data_;
};

/// The system may ignore the request, in part too: under load, or where memory is short. So it is
/// made several times, and the test fails only where the same request made here is obeyed.
TEST(ReadAhead, BringsTheRangeAndLetsGoOfIt) {
  constexpr std::size_t kPages = 4096, kBytes = kPages * 4096;  // more than one step
  const TempFolder folder;
  auto mapped = std::make_shared<const Mapped>(folder / "numbers", kBytes);
  const std::weak_ptr<const Mapped> alive = mapped;
  const bool was_in_memory = mapped->in_memory();
  bool came = false;
  for (int i = 0; i < 5 && !came; ++i) {
    read_ahead(mapped->data() + 100, kBytes - 200, mapped);
    wait_for_read_ahead();
    came = mapped->comes_into_memory();
  }
  if (!came) {
    mapped->ask();
    EXPECT_FALSE(mapped->comes_into_memory());
  }
  mapped.reset();
  EXPECT_TRUE(alive.expired());
  if (was_in_memory || !came) GTEST_SKIP() << "this system keeps or drops pages as it likes";
}

TEST(ReadAhead, KeepsItMappedUntilThen) {
  const TempFolder folder;
  for (int i = 0; i < 50; ++i) {
    auto mapped = std::make_shared<const Mapped>(folder / "numbers", 1 << 16);
    const char* const data = mapped->data();
    read_ahead(data, 1 << 16, std::move(mapped));
  }
  wait_for_read_ahead();
}

TEST(ReadAhead, WhatIsInNoFileOrNowhereDoesNoHarm) {
  const std::vector<char> own(1 << 20, 'x');
  read_ahead(own.data(), own.size(), nullptr);
  read_ahead(own.data(), 0, nullptr);
  read_ahead(nullptr, 1 << 20, nullptr);
  wait_for_read_ahead();
  EXPECT_EQ(own.back(), 'x');
}

}  // namespace
}  // namespace focus
