// The judgements of the checks for cards.
#include "tests/gpu/report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

namespace attnd::gpu {
namespace {

// Whether a comparison passes.
bool Near(const std::vector<float>& got, const std::vector<double>& want, double tolerance) {
  Report report("");
  report.Near("suite", "name", got, want, tolerance);
  EXPECT_EQ(report.checks(), 1);
  return report.failures() == 0;
}

template <typename T>
bool Same(const std::vector<T>& got, const std::vector<T>& want) {
  Report report("");
  report.Same("suite", "name", got, want);
  return report.failures() == 0;
}

TEST(Report, NearIsRelativeToTheNorm) {
  EXPECT_TRUE(Near({3.0f, 4.0f}, {3.0, 4.0}, 1e-6));
  EXPECT_TRUE(Near({3.0f, 4.04f}, {3.0, 4.0}, 1e-2));  // 0.04 of 5
  EXPECT_FALSE(Near({3.0f, 4.06f}, {3.0, 4.0}, 1e-2));
  EXPECT_TRUE(Near({0.0f}, {0.0}, 1e-6));
  EXPECT_FALSE(Near({1e-30f}, {0.0}, 1e-6));
}

TEST(Report, OneElementMayNotBeFarOff) {
  std::vector<double> want(100000, 1.0);
  std::vector<float> got(100000, 1.0f);
  got[7] = 2.5f;  // 0.5 % of the norm, 150 % of the largest
  EXPECT_FALSE(Near(got, want, 1e-2));
  got[7] = 1.5f;
  EXPECT_TRUE(Near(got, want, 1e-2));
}

TEST(Report, WhatIsNotFiniteNeverPasses) {
  EXPECT_FALSE(Near({NAN, 1.0f}, {0.0, 1.0}, 10.0));
  EXPECT_FALSE(Near({1.0f, INFINITY}, {1.0, 1.0}, 10.0));
  EXPECT_FALSE(Near({1.0f}, {1.0, 1.0}, 10.0));
}

TEST(Report, SameIsBitForBit) {
  EXPECT_TRUE(Same<float>({1.0f, NAN}, {1.0f, NAN}));
  EXPECT_FALSE(Same<float>({0.0f}, {-0.0f}));
  EXPECT_FALSE(Same<uint16_t>({1, 2, 3}, {1, 2, 4}));
  EXPECT_FALSE(Same<uint16_t>({1, 2}, {1, 2, 3}));
}

TEST(Report, CountsWhatFails) {
  Report report("");
  report.Holds("suite", "good", true);
  report.Holds("suite", "bad", false, "why");
  EXPECT_EQ(report.checks(), 2);
  EXPECT_EQ(report.failures(), 1);
}

}  // namespace
}  // namespace attnd::gpu
