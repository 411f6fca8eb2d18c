#pragma once

#include <barrier>
#include <functional>
#include <thread>

#include "optim/ranks.h"

namespace focus {

/// Processes played by the threads of one program.
class ThreadRanks {
 public:
  /// Calls f(ranks) on `count` threads at once.
  static void run(int count, const std::function<void(Ranks&)>& f) {
    Meeting meeting(count);
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < count; ++rank)
      threads.emplace_back([&, rank] {
        Rank mine(meeting, rank);
        f(mine);
      });
  }

 private:
  struct Meeting {
    explicit Meeting(int count)
        : barrier(count),
          texts(static_cast<std::size_t>(count)),
          lists(static_cast<std::size_t>(count)) {}
    std::barrier<> barrier;
    std::vector<std::string> texts;
    std::vector<std::vector<std::vector<Real>>> lists;
  };

  class Rank : public Ranks {
   public:
    Rank(Meeting& meeting, int rank) : meeting_(meeting), rank_(rank) {}
    int rank() const override { return rank_; }
    int count() const override { return static_cast<int>(meeting_.texts.size()); }
    std::vector<std::string> gather(const std::string& mine) override {
      meeting_.texts[rank_] = mine;
      meeting_.barrier.arrive_and_wait();
      std::vector<std::string> all = meeting_.texts;
      meeting_.barrier.arrive_and_wait();
      return all;
    }
    std::vector<std::vector<Real>> exchange(std::vector<std::vector<Real>> to) override {
      meeting_.lists[rank_] = std::move(to);
      meeting_.barrier.arrive_and_wait();
      std::vector<std::vector<Real>> mine;
      for (const auto& of_rank : meeting_.lists) mine.push_back(of_rank[rank_]);
      meeting_.barrier.arrive_and_wait();
      return mine;
    }

   private:
    Meeting& meeting_;
    const int rank_;
  };
};

}  // namespace focus
