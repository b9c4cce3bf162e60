// The measure that all golden tests use, itself tested.
#include "tests/support/golden.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace attnd {
namespace {

TEST(Golden, EveryModelHasCasesAndEqualsItself) {
  for (const std::string& model : GoldenModels()) {
    const auto cases = LoadGolden(GoldenDir() + "/" + model);
    ASSERT_TRUE(cases.ok()) << cases.status();
    for (const GoldenCase& golden : *cases) {
      EXPECT_EQ(static_cast<int64_t>(golden.x.size()), golden.len * golden.d_model);
      const Verdict verdict = Compare(golden.y, golden.y, 0);
      EXPECT_TRUE(verdict.passed) << model << ": " << verdict.text;
      EXPECT_FALSE(Compare(golden.x, golden.y, 1e-2).passed) << model << ": the input is no answer";
    }
  }
}

TEST(Golden, TheMeasure) {
  std::vector<float> y(1000, 1.0f);
  std::vector<float> out = y;
  EXPECT_TRUE(Compare(out, y, 1e-5).passed);
  out[3] += 2e-4f;  // relative 2e-4 / sqrt(1000) = 6.3e-6
  EXPECT_TRUE(Compare(out, y, 1e-5).passed) << Compare(out, y, 1e-5).text;
  out[3] = 1 + 4e-4f;
  EXPECT_FALSE(Compare(out, y, 1e-5).passed);
  // One element far off among a million: the norm allows it, the second condition does not.
  y.assign(1000000, 1.0f);
  out = y;
  out[77] += 2e-3f;
  const Verdict verdict = Compare(out, y, 1e-5);
  EXPECT_LE(verdict.relative, 1e-5);
  EXPECT_FALSE(verdict.passed);
  EXPECT_THAT(verdict.text, ::testing::HasSubstr("element 77"));
}

TEST(Golden, NanInfinityAndOtherSizesNeverPass) {
  const std::vector<float> y = {1, 2, 3};
  EXPECT_FALSE(Compare({1, NAN, 3}, y, 1e9).passed);
  EXPECT_FALSE(Compare({1, 2, std::numeric_limits<float>::infinity()}, y, 1e9).passed);
  EXPECT_FALSE(Compare({1, 2}, y, 1e9).passed);
  EXPECT_FALSE(Compare({1, NAN}, {1, NAN}, 1e9).passed);
  EXPECT_FALSE(Compare({}, {}, 1e9).passed);
  EXPECT_TRUE(Compare({0, 0}, {0, 0}, 1e-5).passed);
  EXPECT_FALSE(Compare({0, 1e-3f}, {0, 0}, 1e-5).passed);
}

}  // namespace
}  // namespace attnd
