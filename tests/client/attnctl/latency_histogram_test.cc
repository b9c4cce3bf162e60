// Percentiles from buckets against those of the sorted times.
#include "client/attnctl/latency_histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace attnd::attnctl {
namespace {

// From a nanosecond to an hour, as many in each decade.
std::vector<int64_t> Times(int count) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> exponent(0, 12.5);
  std::vector<int64_t> times;
  for (int i = 0; i < count; ++i) {
    times.push_back(static_cast<int64_t>(std::pow(10, exponent(random))));
  }
  return times;
}

TEST(LatencyHistogram, PercentilesAreAtMostOnePart128TooHigh) {
  std::vector<int64_t> times = Times(10'000);
  LatencyHistogram histogram;
  for (const int64_t ns : times) {
    histogram.Add(ns);
  }
  std::sort(times.begin(), times.end());
  for (const double q : {0.0, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    const size_t rank = static_cast<size_t>(std::ceil(q * 10'000));
    const int64_t exact = times[rank > 0 ? rank - 1 : 0];
    EXPECT_GE(histogram.QuantileNs(q), exact) << q;
    EXPECT_LE(histogram.QuantileNs(q), exact + exact / 128) << q;
  }
  EXPECT_EQ(histogram.QuantileNs(1), times.back());
  EXPECT_EQ(histogram.max_ns(), times.back());
  double sum = 0;
  for (const int64_t ns : times) {
    sum += static_cast<double>(ns);
  }
  EXPECT_NEAR(histogram.mean_ns(), sum / 10'000, 1e-9 * sum / 10'000);
}

TEST(LatencyHistogram, SmallTimesAreExact) {
  for (int64_t ns = 0; ns < 256; ++ns) {
    LatencyHistogram histogram;
    histogram.Add(ns);
    histogram.Add(1'000'000'000);
    EXPECT_EQ(histogram.QuantileNs(0.5), ns);
  }
}

TEST(LatencyHistogram, PartsMergedAreTheWhole) {
  LatencyHistogram whole, even, odd;
  int i = 0;
  for (const int64_t ns : Times(1'000)) {
    whole.Add(ns);
    (i++ % 2 == 0 ? even : odd).Add(ns);
  }
  even.Merge(odd);
  EXPECT_EQ(even.count(), whole.count());
  EXPECT_EQ(even.max_ns(), whole.max_ns());
  EXPECT_NEAR(even.mean_ns(), whole.mean_ns(), 1e-6 * whole.mean_ns());
  for (const double q : {0.01, 0.5, 0.99}) {
    EXPECT_EQ(even.QuantileNs(q), whole.QuantileNs(q));
  }
}

TEST(LatencyHistogram, NoneIsZeroAndSoIsATimeBelowIt) {
  LatencyHistogram histogram;
  EXPECT_EQ(histogram.QuantileNs(0.99), 0);
  EXPECT_EQ(histogram.mean_ns(), 0);
  histogram.Add(-5);
  EXPECT_EQ(histogram.count(), 1);
  EXPECT_EQ(histogram.QuantileNs(1), 0);
}

}  // namespace
}  // namespace attnd::attnctl
