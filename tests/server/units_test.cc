// Sizes and durations as flags write them.
#include "server/units.h"

#include "gtest/gtest.h"

namespace attnd::server {
namespace {

TEST(UnitsTest, ReadsBytes) {
  EXPECT_EQ(ParseBytes("4096"), 4096);
  EXPECT_EQ(ParseBytes("0"), 0);
  EXPECT_EQ(ParseBytes("17B"), 17);
  EXPECT_EQ(ParseBytes("512MiB"), int64_t{512} << 20);
  EXPECT_EQ(ParseBytes("8GiB"), int64_t{8} << 30);
  EXPECT_EQ(ParseBytes("1.5KiB"), 1536);
  EXPECT_EQ(ParseBytes("7TiB"), int64_t{7} << 40);
}

TEST(UnitsTest, RefusesWhatIsNoSize) {
  for (const char* text : {"", "MiB", "-1", "1 MiB", "1MB", "1mib", "1.2.3KiB", ".5KiB", "5.KiB",
                           "9223372036854775808", "9000000TiB", "1e3", "0x10", "nan", "inf"}) {
    EXPECT_EQ(ParseBytes(text), std::nullopt) << text;
  }
}

TEST(UnitsTest, ReadsDurations) {
  EXPECT_EQ(ParseDuration("10m"), 600'000'000'000);
  EXPECT_EQ(ParseDuration("24h"), 86'400'000'000'000);
  EXPECT_EQ(ParseDuration("1.5s"), 1'500'000'000);
  EXPECT_EQ(ParseDuration("250ms"), 250'000'000);
  EXPECT_EQ(ParseDuration("3us"), 3'000);
  EXPECT_EQ(ParseDuration("9ns"), 9);
}

TEST(UnitsTest, RefusesWhatIsNoDuration) {
  for (const char* text : {"", "10", "s", "-1s", "1d", "1 s", "99999999999999h"}) {
    EXPECT_EQ(ParseDuration(text), std::nullopt) << text;
  }
}

TEST(UnitsTest, WhatIsWrittenIsReadBack) {
  for (int64_t value : {int64_t{0}, int64_t{1}, int64_t{1023}, int64_t{1024}, int64_t{1} << 20,
                        int64_t{3} << 30, (int64_t{1} << 40) + 1}) {
    EXPECT_EQ(ParseBytes(FormatBytes(value)), value);
  }
  for (int64_t value : {int64_t{0}, int64_t{999}, int64_t{1'500'000'000}, int64_t{600'000'000'000},
                        int64_t{86'400'000'000'000}}) {
    EXPECT_EQ(ParseDuration(FormatDuration(value)), value);
  }
  EXPECT_EQ(FormatBytes(int64_t{256} << 20), "256MiB");
  EXPECT_EQ(FormatDuration(86'400'000'000'000), "24h");
}

}  // namespace
}  // namespace attnd::server
