// What /proc says of the process.
#include "server/process_stats.h"

#include <ctime>

#include "gtest/gtest.h"

namespace attnd::server {
namespace {

TEST(ProcessStatsTest, IsPlausible) {
  const std::clock_t begin = std::clock();
  while (std::clock() - begin < CLOCKS_PER_SEC / 20) {  // 50 ms of work
  }
  const ProcessStats stats = ReadProcessStats();
  EXPECT_GE(stats.cpu_seconds, 0.03);
  EXPECT_GE(stats.open_fds, 3);
  EXPECT_GE(stats.max_fds, stats.open_fds);
  EXPECT_GT(stats.resident_bytes, 1 << 20);
  EXPECT_GT(stats.virtual_bytes, stats.resident_bytes);
  const auto now = static_cast<double>(std::time(nullptr));
  EXPECT_LE(stats.start_time_seconds, now + 1);
  EXPECT_GE(stats.start_time_seconds, now - 3600);
}

}  // namespace
}  // namespace attnd::server
