#include "core/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <set>

namespace attnd {
namespace {

TEST(Rope, PlainFrequencies) {
  const std::vector<double> theta = RopeFrequencies({8, 10000, 1});
  ASSERT_EQ(theta.size(), 4u);
  EXPECT_DOUBLE_EQ(theta[0], 1);
  EXPECT_DOUBLE_EQ(theta[1], 0.1);
  EXPECT_DOUBLE_EQ(theta[2], 0.01);
  EXPECT_DOUBLE_EQ(theta[3], 0.001);
}

// All three branches, each against the formula written out, and each met.
TEST(Rope, StretchedFrequencies) {
  struct Case {
    RopeSpec spec;
    std::set<char> branches;
  };
  // With rho below 32 the ramp is empty: what is not short is long.
  for (const Case& c : {Case{{64, 10000, 40}, {'s', 'r', 'l'}}, Case{{16, 1e6, 8}, {'s', 'l'}},
                        Case{{128, 1e6, 8}, {'s', 'l'}}, Case{{128, 500000, 1000}, {'s', 'r', 'l'}},
                        Case{{4, 2, 1.5}, {'s'}}}) {
    const std::vector<double> theta = RopeFrequencies(c.spec);
    std::set<char> met;
    for (size_t t = 0; t < theta.size(); ++t) {
      const double plain = std::pow(c.spec.base, -2.0 * t / c.spec.width);
      const double lambda = 2 * std::numbers::pi / plain;
      double expected = 0;
      if (lambda < 32) {
        met.insert('s');
        expected = plain;
      } else if (lambda > c.spec.scaling) {
        met.insert('l');
        expected = plain / c.spec.scaling;
      } else {
        met.insert('r');
        const double u = (lambda - 1) / (c.spec.scaling - 1);
        expected = plain / (u * c.spec.scaling + 1 - u);
        EXPECT_LT(theta[t], plain);
        EXPECT_GT(theta[t], plain / c.spec.scaling);
      }
      EXPECT_NEAR(theta[t], expected, 1e-15 * expected) << t;
    }
    EXPECT_EQ(met, c.branches);
  }
}

float Ulp(float x) {
  const float magnitude = std::abs(x);
  return std::nextafter(magnitude, 2.0f) - magnitude;
}

TEST(Rope, RowsAreRightAtAnyPosition) {
  for (const RopeSpec& spec : {RopeSpec{128, 1e6, 8}, RopeSpec{64, 10000, 1}, RopeSpec{6, 500, 1},
                               RopeSpec{64, 10000, 40}}) {
    constexpr int64_t kPositions = (int64_t{1} << 20) + 1;
    const std::vector<double> theta = RopeFrequencies(spec);
    const RopeTable table(spec, kPositions);
    ASSERT_EQ(table.half(), spec.width / 2);
    std::vector<float> cos(table.half());
    std::vector<float> sin(table.half());
    for (const int64_t position :
         {int64_t{0}, int64_t{1}, int64_t{1023}, int64_t{1024}, int64_t{4095}, int64_t{4096},
          int64_t{15962}, int64_t{131071}, int64_t{1000003}, int64_t{1} << 20}) {
      table.Row(position, cos.data(), sin.data());
      for (int64_t t = 0; t < table.half(); ++t) {
        const long double angle = static_cast<long double>(position) * theta[t];
        const double c = static_cast<double>(std::cos(angle));
        const double s = static_cast<double>(std::sin(angle));
        // A unit of the float, or, near a zero, the rounding of the angle itself in float64.
        ASSERT_NEAR(cos[t], c, std::max<double>(Ulp(cos[t]), 3e-10)) << position << " " << t;
        ASSERT_NEAR(sin[t], s, std::max<double>(Ulp(sin[t]), 3e-10)) << position << " " << t;
      }
    }
  }
}

TEST(Rope, TablesOfAnyLengthEndWhereTheyShould) {
  for (const int64_t positions : {1, 2, 3, 4, 5, 15, 16, 17, 255, 256, 257, 1000}) {
    const RopeTable table({2, 10000, 1}, positions);
    for (int64_t position = 0; position < positions; ++position) {
      float cos = 0;
      float sin = 0;
      table.Row(position, &cos, &sin);
      ASSERT_NEAR(cos, std::cos(static_cast<double>(position)), 1e-7) << positions;
      ASSERT_NEAR(sin, std::sin(static_cast<double>(position)), 1e-7) << positions;
    }
    float unused = 0;
    EXPECT_DEATH(table.Row(positions, &unused, &unused), "broken invariant");
    EXPECT_DEATH(table.Row(-1, &unused, &unused), "broken invariant");
  }
}

}  // namespace
}  // namespace attnd
