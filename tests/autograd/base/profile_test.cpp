#include "autograd/base/profile.h"

#include <chrono>
#include <numeric>
#include <thread>

#include "tests/support/compare.h"

namespace focus {
namespace {

std::int64_t calls(const Profile& profile, std::string_view name) {
  for (const Profile::Entry& entry : profile.entries())
    if (entry.name == name) return entry.calls;
  return 0;
}

void pass() {
  const Variable x = leaf(randn({64, 64}, 1));
  backward(sigmoid(multiply(tanh(x), x)));
}

TEST(Profile, EveryOpIsMarkedForwardAndBackward) {
  const Profile profile;
  pass();
  {
    const NoGrad guard;
    tanh(randn({4}, 1));
  }
  EXPECT_EQ(calls(profile, "tanh"), 2);
  for (const char* name : {"multiply", "sigmoid", "tanh backward", "multiply backward"})
    EXPECT_EQ(calls(profile, name), 1) << name;
}

TEST(Profile, SumsToTheTimeUpToTheLastMark) {
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto seconds = [](auto a, auto b) { return std::chrono::duration<double>(b - a).count(); };
  const auto outer_start = now();
  const Profile profile;
  const auto inner_start = now();
  pass();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto inner_end = now();
  profile_mark("end");
  const auto outer_end = now();
  const double sum = std::accumulate(profile.entries().begin(), profile.entries().end(), 0.0,
                                     [](double s, const auto& entry) { return s + entry.seconds; });
  // No stretch is lost and none is counted twice. (The sum's own rounding is far below 1e-9.)
  EXPECT_GE(sum, seconds(inner_start, inner_end) - 1e-9);
  EXPECT_LE(sum, seconds(outer_start, outer_end) + 1e-9);
  EXPECT_GE(profile.seconds("end"), 0.02);
  EXPECT_EQ(profile.seconds("never marked"), 0);
}

TEST(Profile, NothingIsRecordedWithoutOne) {
  pass();
  profile_mark("before");
  const Profile profile;
  EXPECT_TRUE(profile.entries().empty());
  std::thread([] { profile_mark("another thread's"); }).join();
  EXPECT_TRUE(profile.entries().empty());
}

TEST(Profile, EndsWithItsScopeAndIsAloneInIt) {
  {
    const Profile profile;
    EXPECT_THROW(Profile(), std::invalid_argument);
    profile_mark("still here");
    EXPECT_EQ(calls(profile, "still here"), 1);
  }
  const Profile next;
  EXPECT_TRUE(next.entries().empty());
}

TEST(Profile, NamesWithAndWithoutSuffixStayApart) {
  const Profile profile;
  profile_mark("a", " backward");
  profile_mark("a");
  profile_mark("ab", "");
  profile_mark("a", "b");
  EXPECT_EQ(calls(profile, "a backward"), 1);
  EXPECT_EQ(calls(profile, "a"), 1);
  EXPECT_EQ(calls(profile, "ab"), 2);
}

}  // namespace
}  // namespace focus
