#include "apps/mpi.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <numeric>
#include <thread>

#include "autograd/base/check.h"

#if FOCUS_MPI
#include <mpi.h>
#endif

namespace focus::app {

namespace {

/// The number that the launcher has left under one of its names.
int launched_number(std::initializer_list<const char*> names, int without_launcher) {
  for (const char* const name : names)
    if (const char* const number = std::getenv(name)) return std::atoi(number);
  return without_launcher;
}

}  // namespace

int launched_processes() { return launched_number({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}, 1); }
int launched_rank() { return launched_number({"OMPI_COMM_WORLD_RANK", "PMI_RANK"}, 0); }

#if FOCUS_MPI
namespace {

class MpiRanks : public Ranks {
 public:
  MpiRanks() {
    int given = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &given);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &count_);
  }
  ~MpiRanks() override {
    // With an error on its way the others may be waiting for this process: the launcher sees it end
    // and ends them.
    if (std::uncaught_exceptions() == 0) MPI_Finalize();
  }

  int rank() const override { return rank_; }
  int count() const override { return count_; }

  /// May take hours: a process that has come early must not keep a core busy meanwhile.
  void wait() override {
    MPI_Request all_here;
    MPI_Ibarrier(MPI_COMM_WORLD, &all_here);
    for (int done = 0;;) {
      MPI_Test(&all_here, &done, MPI_STATUS_IGNORE);
      if (done != 0) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  std::vector<std::string> gather(const std::string& mine) override {
    const auto size = static_cast<int>(mine.size());
    std::vector<int> sizes(count_);
    MPI_Allgather(&size, 1, MPI_INT, sizes.data(), 1, MPI_INT, MPI_COMM_WORLD);
    const std::vector<int> begins = begins_of(sizes);
    std::string all(static_cast<std::size_t>(begins.back() + sizes.back()), '\0');
    MPI_Allgatherv(mine.data(), size, MPI_BYTE, all.data(), sizes.data(), begins.data(), MPI_BYTE,
                   MPI_COMM_WORLD);
    std::vector<std::string> lists;
    for (std::size_t i = 0; i < sizes.size(); ++i)
      lists.push_back(
          all.substr(static_cast<std::size_t>(begins[i]), static_cast<std::size_t>(sizes[i])));
    return lists;
  }

  std::vector<std::vector<Real>> exchange(std::vector<std::vector<Real>> to) override {
    std::vector<int> sizes, sizes_back(static_cast<std::size_t>(count_));
    std::vector<Real> flat;
    for (const std::vector<Real>& list : to) {
      sizes.push_back(static_cast<int>(list.size() * sizeof(Real)));
      flat.insert(flat.end(), list.begin(), list.end());
    }
    MPI_Alltoall(sizes.data(), 1, MPI_INT, sizes_back.data(), 1, MPI_INT, MPI_COMM_WORLD);
    const std::vector<int> begins = begins_of(sizes), begins_back = begins_of(sizes_back);
    std::vector<Real> back((begins_back.back() + sizes_back.back()) / sizeof(Real));
    MPI_Alltoallv(flat.data(), sizes.data(), begins.data(), MPI_BYTE, back.data(),
                  sizes_back.data(), begins_back.data(), MPI_BYTE, MPI_COMM_WORLD);
    std::vector<std::vector<Real>> lists;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const Real* const begin =
          back.data() + static_cast<std::size_t>(begins_back[i]) / sizeof(Real);
      lists.emplace_back(begin, begin + static_cast<std::size_t>(sizes_back[i]) / sizeof(Real));
    }
    return lists;
  }

 private:
  static std::vector<int> begins_of(const std::vector<int>& sizes) {
    std::vector<int> begins(sizes.size());
    std::exclusive_scan(sizes.begin(), sizes.end(), begins.begin(), 0);
    return begins;
  }

  int rank_ = 0, count_ = 1;
};

}  // namespace
#endif

std::unique_ptr<Ranks> join_ranks() {
  if (launched_processes() == 1) return std::make_unique<Ranks>();
#if FOCUS_MPI
  return std::make_unique<MpiRanks>();
#else
  fail(
      "started as one of {} processes, but this program was built without MPI: build it with "
      "-DFOCUS_MPI=ON, or start it without mpirun",
      launched_processes());
#endif
}

void wait_for_rank_zero() { std::this_thread::sleep_for(std::chrono::seconds(5)); }

void run_as_one_of(const Ranks& ranks, const std::function<void()>& f) {
  if (ranks.count() == 1) return f();
  try {
    f();
  } catch (const std::exception& error) {
    // An error of all processes is printed by the first only; the launcher ends the others.
    if (!ranks.first()) {
      std::signal(SIGTERM, SIG_DFL);
      wait_for_rank_zero();
    }
    fail("process {} of {}: {}", ranks.rank(), ranks.count(), error.what());
  }
}

void only_rank_zero_prints(const Ranks& ranks) {
  if (ranks.first()) return;
  if (std::freopen("/dev/null", "w", stdout) == nullptr) fail("cannot open /dev/null");
  spdlog::set_level(spdlog::level::err);
}

}  // namespace focus::app
