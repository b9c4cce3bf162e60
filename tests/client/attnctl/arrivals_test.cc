// The times at which requests are due.
#include "client/attnctl/arrivals.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace attnd::attnctl {
namespace {

constexpr auto kPoisson = ArrivalOptions::Kind::kPoisson;

std::vector<int64_t> Times(const ArrivalOptions& options, int count) {
  Arrivals arrivals(options);
  std::vector<int64_t> times;
  for (int i = 0; i < count; ++i) {
    times.push_back(arrivals.NextNs());
  }
  return times;
}

TEST(Arrivals, ConstantOnesDoNotDrift) {
  Arrivals arrivals({ArrivalOptions::Kind::kConstant, 3, 1});
  int64_t last = 0;
  for (int i = 0; i <= 3'000'000; ++i) {
    last = arrivals.NextNs();
  }
  EXPECT_EQ(last, 1'000'000 * int64_t{1'000'000'000});
}

TEST(Arrivals, PoissonGapsAreExponentialOfTheRate) {
  const int count = 200'000;
  const std::vector<int64_t> times = Times({kPoisson, 1000, 5}, count);
  int longer = 0;
  for (int i = 1; i < count; ++i) {
    const int64_t gap = times[static_cast<size_t>(i)] - times[static_cast<size_t>(i - 1)];
    ASSERT_GE(gap, 0);
    longer += gap > 1'000'000 ? 1 : 0;  // the mean
  }
  EXPECT_NEAR(static_cast<double>(times.back()) / count, 1e6, 1e4);
  EXPECT_NEAR(static_cast<double>(longer) / count, std::exp(-1), 0.005);
}

TEST(Arrivals, TheSeedDecides) {
  EXPECT_EQ(Times({kPoisson, 10, 1}, 100), Times({kPoisson, 10, 1}, 100));
  EXPECT_NE(Times({kPoisson, 10, 1}, 100), Times({kPoisson, 10, 2}, 100));
}

}  // namespace
}  // namespace attnd::attnctl
