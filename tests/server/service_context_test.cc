// Deadlines of calls on our clock.
#include "server/service_context.h"

#include "gtest/gtest.h"
#include "tests/support/test_engine.h"

namespace attnd::server {
namespace {

MonotonicNs In(int64_t seconds) {
  const ManualClock clock;
  const gpr_timespec left = gpr_time_from_seconds(seconds, GPR_TIMESPAN);
  return ToMonotonic(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), left), clock);
}

TEST(ServiceContextTest, DeadlinesAreOnOurClock) {
  constexpr int64_t kSecond = 1'000'000'000;
  EXPECT_NEAR(static_cast<double>(In(60) - ManualClock().Now()), 60.0 * kSecond, 5.0 * kSecond);
  EXPECT_LT(In(-1), ManualClock().Now());
}

TEST(ServiceContextTest, ATimeCenturiesAwayIsNoDeadline) {
  constexpr int64_t kHour = 3600;
  for (const int64_t hours : {8762, 2'000'000, 2'562'047, 99'999'999}) {
    EXPECT_EQ(In(hours * kHour), kNever) << hours;
  }
  const ManualClock clock;
  EXPECT_EQ(ToMonotonic(gpr_inf_future(GPR_CLOCK_REALTIME), clock), kNever);
  EXPECT_LT(ToMonotonic(gpr_inf_past(GPR_CLOCK_REALTIME), clock), clock.Now());
}

}  // namespace
}  // namespace attnd::server
