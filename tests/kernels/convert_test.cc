#include "kernels/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/kernels/compare.h"

namespace attnd::kernels {
namespace {

// The value of a 16-bit float by its definition.
double Decode(uint16_t bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) {
    return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  }
  return sign * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

double Decode(DType dtype, uint16_t bits) {
  return dtype == DType::kF16 ? Decode(bits, 5, 10) : Decode(bits, 8, 7);
}

float Up(DType dtype, uint16_t bits, bool* finite) {
  float value = 0;
  *finite = ToFloat(dtype, &bits, 1, &value);
  return value;
}

uint16_t Down(DType dtype, float value, bool* finite) {
  uint16_t bits = 0;
  *finite = FromFloat(dtype, &value, 1, &bits);
  return bits;
}

class Convert16Test : public ::testing::TestWithParam<DType> {};

TEST_P(Convert16Test, EveryValueUpAndBack) {
  for (int i = 0; i < 65536; ++i) {
    const uint16_t bits = static_cast<uint16_t>(i);
    const double want = Decode(GetParam(), bits);
    bool finite = false;
    const float value = Up(GetParam(), bits, &finite);
    ASSERT_EQ(finite, std::isfinite(want)) << i;
    bool back_finite = false;
    const uint16_t back = Down(GetParam(), value, &back_finite);
    ASSERT_EQ(back_finite, finite) << i;
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(value)) << i;
      ASSERT_TRUE(std::isnan(Decode(GetParam(), back))) << i;
    } else {
      ASSERT_EQ(value, want) << i;
      ASSERT_EQ(std::signbit(value), std::signbit(want)) << i;
      ASSERT_EQ(back, bits) << i;
    }
  }
}

TEST_P(Convert16Test, BetweenNeighboursToTheNearestAndHalfwayToEven) {
  const int infinity = GetParam() == DType::kF16 ? 0x7c00 : 0x7f80;
  for (int i = 0; i + 1 < infinity; ++i) {
    const double low = Decode(GetParam(), static_cast<uint16_t>(i));
    const double high = Decode(GetParam(), static_cast<uint16_t>(i + 1));
    const float half = static_cast<float>((low + high) / 2);  // exact: one more bit
    for (const int sign : {0, 0x8000}) {
      const float s = sign != 0 ? -1.0f : 1.0f;
      const int even = i % 2 == 0 ? i : i + 1;
      bool finite = false;
      ASSERT_EQ(Down(GetParam(), s * half, &finite), sign + even) << i;
      ASSERT_EQ(Down(GetParam(), s * std::nextafter(half, 0.0f), &finite), sign + i) << i;
      ASSERT_EQ(Down(GetParam(), s * std::nextafter(half, INFINITY), &finite), sign + i + 1) << i;
    }
  }
}

TEST_P(Convert16Test, OverflowIsInfinityAndNotFinite) {
  const bool f16 = GetParam() == DType::kF16;
  const uint16_t infinity = f16 ? 0x7c00 : 0x7f80;
  const float largest = static_cast<float>(Decode(GetParam(), static_cast<uint16_t>(infinity - 1)));
  bool finite = false;
  EXPECT_EQ(Down(GetParam(), largest, &finite), infinity - 1);
  EXPECT_TRUE(finite);
  // Half a unit above the largest value the rounding goes up, to even.
  const float above = f16 ? 65520.0f : std::numeric_limits<float>::max();
  EXPECT_EQ(Down(GetParam(), above, &finite), infinity);
  EXPECT_FALSE(finite);
  EXPECT_EQ(Down(GetParam(), -INFINITY, &finite), 0x8000 | infinity);
  EXPECT_FALSE(finite);
}

TEST_P(Convert16Test, NanStaysNanWhateverItsPayload) {
  for (const uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7fc00000u,
                              0x7f80ffffu, 0x7fbfffffu}) {
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    bool finite = true;
    EXPECT_TRUE(std::isnan(Decode(GetParam(), Down(GetParam(), value, &finite)))) << bits;
    EXPECT_FALSE(finite) << bits;
  }
}

TEST_P(Convert16Test, TinyValuesRoundToZeroOrTheSmallest) {
  bool finite = false;
  const float smallest = static_cast<float>(Decode(GetParam(), 1));
  EXPECT_EQ(Down(GetParam(), smallest, &finite), 1);
  EXPECT_EQ(Down(GetParam(), -smallest, &finite), 0x8001);
  EXPECT_EQ(Down(GetParam(), std::numeric_limits<float>::denorm_min(), &finite), 0);
  EXPECT_EQ(Down(GetParam(), -0.0f, &finite), 0x8000);
}

INSTANTIATE_TEST_SUITE_P(DTypes, Convert16Test, ::testing::Values(DType::kF16, DType::kBF16),
                         [](const auto& dtype) { return DTypeName(dtype.param); });

// Any length at any address, and a NaN at any place is seen; nothing beyond is touched.
TEST(ConvertTest, OddLengthsAndAddresses) {
  Random random(1);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const int64_t size = DTypeSize(dtype);
    for (const int64_t n : {0, 1, 3, 7, 8, 15, 16, 17, 31, 33, 100, 257}) {
      for (const int64_t offset : {0, 1, 2, 3, 5}) {
        const std::vector<float> values = random.Floats(n);
        std::vector<uint8_t> bytes(static_cast<size_t>(n * size + offset + 8), 0xab);
        ASSERT_TRUE(FromFloat(dtype, values.data(), n, bytes.data() + offset));
        for (size_t i = static_cast<size_t>(offset + n * size); i < bytes.size(); ++i) {
          ASSERT_EQ(bytes[i], 0xab);
        }
        std::vector<float> back(static_cast<size_t>(n) + 1, 123.0f);
        ASSERT_TRUE(ToFloat(dtype, bytes.data() + offset, n, back.data()));
        ASSERT_EQ(back.back(), 123.0f);
        back.pop_back();
        ASSERT_TRUE(Close(back, {values.begin(), values.end()}, dtype == DType::kF32 ? 0 : 8e-3));
        for (int64_t i = 0; i < n; ++i) {
          std::vector<float> with_nan = values;
          with_nan[static_cast<size_t>(i)] = i % 2 == 0 ? kNoNumber : -INFINITY;
          ASSERT_FALSE(FromFloat(dtype, with_nan.data(), n, bytes.data() + offset));
          ASSERT_FALSE(ToFloat(dtype, bytes.data() + offset, n, back.data()));
        }
      }
    }
  }
}

}  // namespace
}  // namespace attnd::kernels
