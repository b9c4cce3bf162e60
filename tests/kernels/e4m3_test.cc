// e4m3 by its definition, and rows of it with their scale.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/convert.h"
#include "tests/kernels/compare.h"

namespace attnd::kernels {
namespace {

// Sign, 4 bits of exponent with bias 7, 3 of mantissa; all ones is the NaN, there is no infinity.
double Decoded(int bits) {
  const int exponent = (bits >> 3) & 15;
  const double mantissa = bits & 7;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

TEST(E4M3Test, EveryByteIsWhatItsBitsSayAndComesBack) {
  for (int i = 0; i < 256; ++i) {
    const auto bits = static_cast<uint8_t>(i);
    if ((i & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(WidenE4M3(bits)));
      EXPECT_EQ(NarrowE4M3(WidenE4M3(bits)) & 0x7f, 0x7f);
      continue;
    }
    ASSERT_EQ(WidenE4M3(bits), Decoded(i)) << i;
    ASSERT_EQ(std::signbit(WidenE4M3(bits)), i >= 128) << i;
    ASSERT_EQ(NarrowE4M3(WidenE4M3(bits)), bits);
  }
}

TEST(E4M3Test, BetweenNeighboursToTheNearestAndHalfwayToEven) {
  for (int i = 0; i + 1 < 0x7f; ++i) {
    const auto half = static_cast<float>((Decoded(i) + Decoded(i + 1)) / 2);
    for (const int sign : {0, 0x80}) {
      const float s = sign != 0 ? -1.0f : 1.0f;
      ASSERT_EQ(NarrowE4M3(s * half), sign + (i % 2 == 0 ? i : i + 1)) << i;
      ASSERT_EQ(NarrowE4M3(s * std::nextafter(half, 0.0f)), sign + i) << i;
      ASSERT_EQ(NarrowE4M3(s * std::nextafter(half, INFINITY)), sign + i + 1) << i;
    }
  }
}

TEST(E4M3Test, WhatIsTooLargeIsTheLargest) {
  for (const float large : {448.0f, 449.0f, 464.0f, 480.0f, 1e9f, INFINITY}) {
    EXPECT_EQ(NarrowE4M3(large), 0x7e) << large;
    EXPECT_EQ(NarrowE4M3(-large), 0xfe) << large;
  }
}

TEST(E4M3Test, RowsAreWithinTheirBound) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    std::vector<float> values = random.Floats(1 + random.Below(300));
    const int exponent = static_cast<int>(random.Below(230)) - 110;
    double largest = 0;
    for (float& value : values) {
      value = std::ldexp(value, exponent);
      largest = std::max(largest, std::abs(double{value}));
    }
    std::vector<uint8_t> units(values.size());
    float scale = 0;
    ASSERT_TRUE(
        QuantizeE4M3(values.data(), static_cast<int64_t>(values.size()), units.data(), &scale));
    for (size_t i = 0; i < values.size(); ++i) {
      const double read = double{WidenE4M3(units[i])} * scale;
      const double bound =
          std::max(std::abs(double{values[i]}) * 0x1p-4, scale * 0x1p-10) * 1.000001;
      ASSERT_LE(std::abs(read - values[i]), bound) << "seed " << seed << " element " << i;
    }
  }
}

TEST(E4M3Test, ZerosAndWhatIsNotFinite) {
  uint8_t units[3];
  float scale = -1;
  const float zeros[3] = {0, -0.0f, 0};
  EXPECT_TRUE(QuantizeE4M3(zeros, 3, units, &scale));
  EXPECT_EQ(scale, 0);
  EXPECT_EQ(units[0], 0);
  EXPECT_EQ(units[1], 0x80);
  for (const float bad : {kNoNumber, INFINITY, -INFINITY}) {
    const float row[3] = {1, bad, 2};
    EXPECT_FALSE(QuantizeE4M3(row, 3, units, &scale)) << bad;
  }
}

}  // namespace
}  // namespace attnd::kernels
