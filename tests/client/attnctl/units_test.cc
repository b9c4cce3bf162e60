// Numbers as people read them.
#include "client/attnctl/units.h"

#include <gtest/gtest.h>

namespace attnd::attnctl {
namespace {

TEST(Units, CountsHaveThousandsSeparators) {
  EXPECT_EQ(Count(0), "0");
  EXPECT_EQ(Count(999), "999");
  EXPECT_EQ(Count(1000), "1,000");
  EXPECT_EQ(Count(131072), "131,072");
  EXPECT_EQ(Count(-1234567), "-1,234,567");
}

TEST(Units, BytesAndFlopAreScaled) {
  EXPECT_EQ(Bytes(1023), "1023 B");
  EXPECT_EQ(Bytes(1536), "1.5 KiB");
  EXPECT_EQ(Bytes(8.0 * 1024 * 1024 * 1024), "8 GiB");
  EXPECT_EQ(Flop(2.5e9), "2.5 GFLOP");
}

TEST(Units, DurationsFromNanosecondsToSeconds) {
  EXPECT_EQ(Duration(850), "850 ns");
  EXPECT_EQ(Duration(12'340), "12.3 us");
  EXPECT_EQ(Duration(4.56e6), "4.56 ms");
  EXPECT_EQ(Duration(1.2e9), "1.20 s");
}

TEST(Units, PercentsAreShort) {
  EXPECT_EQ(Percent(1), "100 %");
  EXPECT_EQ(Percent(0.0625), "6.25 %");
  EXPECT_EQ(Percent(0.03125), "3.1 %");
  EXPECT_EQ(Percent(1.0 / 128), "0.78 %");
  EXPECT_EQ(Percent(0), "0 %");
}

}  // namespace
}  // namespace attnd::attnctl
