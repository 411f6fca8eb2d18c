#include "data/text/format.h"

#include <gtest/gtest.h>

#include <cmath>

namespace focus {
namespace {

TEST(Format, Counts) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(950), "950");
  EXPECT_EQ(format_count(999.9), "1.0k");
  EXPECT_EQ(format_count(1234), "1.2k");
  EXPECT_EQ(format_count(5.1e6), "5.1M");
  EXPECT_EQ(format_count(2e15), "2000.0T");
}

TEST(Format, Bytes) {
  EXPECT_EQ(format_bytes(700), "700 B");
  EXPECT_EQ(format_bytes(1024), "1.0 KiB");
  EXPECT_EQ(format_bytes(3.4 * (1 << 30)), "3.4 GiB");
}

TEST(Format, Durations) {
  EXPECT_EQ(format_duration(4.2), "4s");
  EXPECT_EQ(format_duration(59.7), "1m00s");
  EXPECT_EQ(format_duration(75), "1m15s");
  EXPECT_EQ(format_duration(3720), "1h02m");
  EXPECT_EQ(format_duration(2 * 86400), "2d00h");
  EXPECT_EQ(format_duration(INFINITY), "?");
  EXPECT_EQ(format_duration(NAN), "?");
}

}  // namespace
}  // namespace focus
