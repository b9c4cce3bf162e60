// Every value of every element type to float and back, and every place where rounding decides.
#include "kernels/cuda/element.cuh"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace attnd::kernels::cuda {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Format {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;
};

template <typename E>
constexpr Format kFormat = {};
template <>
constexpr Format kFormat<BF16> = {8, 7, true};
template <>
constexpr Format kFormat<F16> = {5, 10, true};
template <>
constexpr Format kFormat<E4M3> = {4, 3, false};

// The value of non-negative bits, by the definition of such formats.
double ValueOf(const Format& format, uint32_t bits) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const uint32_t mantissa = bits & ((1u << format.mantissa_bits) - 1);
  const int exponent = static_cast<int>(bits >> format.mantissa_bits);
  const uint32_t top = (1u << format.exponent_bits) - 1;
  const bool special = format.has_infinity
                           ? exponent == static_cast<int>(top)
                           : bits == (1u << (format.exponent_bits + format.mantissa_bits)) - 1;
  if (special) {
    return format.has_infinity && mantissa == 0 ? kInfinity : std::nan("");
  }
  const double fraction = std::ldexp(static_cast<double>(mantissa), -format.mantissa_bits);
  return exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
}

template <typename E>
class Element : public testing::Test {
 protected:
  using Bits = decltype(E::bits);
  static constexpr uint32_t kSign = 1u << (8 * sizeof(Bits) - 1);
  static E Of(uint32_t bits) { return E{static_cast<Bits>(bits)}; }
};
using Elements = testing::Types<BF16, F16, E4M3>;
TYPED_TEST_SUITE(Element, Elements);

TYPED_TEST(Element, EveryValueToFloatAndBack) {
  for (uint32_t sign : {0u, this->kSign}) {
    for (uint32_t bits = 0; bits < this->kSign; ++bits) {
      const double value = ValueOf(kFormat<TypeParam>, bits);
      const float got = ToFloat(this->Of(sign | bits));
      const TypeParam back = FromFloat<TypeParam>(got);
      if (std::isnan(value)) {
        ASSERT_TRUE(std::isnan(got)) << bits;
        ASSERT_EQ(back.bits, this->kSign - 1) << bits;  // the one NaN of the hardware
      } else {
        ASSERT_EQ(got, sign == 0 ? value : -value) << bits;
        ASSERT_EQ(std::signbit(got), sign != 0) << bits;
        if (std::isfinite(value) || kFormat<TypeParam>.has_infinity) {
          ASSERT_EQ(back.bits, sign | bits);
        }
      }
    }
  }
}

TYPED_TEST(Element, RoundsToNearestAndHalvesToEven) {
  int64_t checked = 0;
  for (uint32_t bits = 0; std::isfinite(ValueOf(kFormat<TypeParam>, bits + 1)); ++bits) {
    const double low = ValueOf(kFormat<TypeParam>, bits);
    const double high = ValueOf(kFormat<TypeParam>, bits + 1);
    const auto half = static_cast<float>((low + high) / 2);
    ASSERT_EQ(half, (low + high) / 2);
    for (uint32_t sign : {0u, this->kSign}) {
      const auto rounded = [&](float x) { return FromFloat<TypeParam>(sign == 0 ? x : -x).bits; };
      ASSERT_EQ(rounded(half), sign | (bits + (bits & 1))) << half;
      ASSERT_EQ(rounded(std::nextafter(half, 0.0f)), sign | bits) << half;
      ASSERT_EQ(rounded(std::nextafter(half, kInfinity)), sign | (bits + 1)) << half;
      ++checked;
    }
  }
  EXPECT_GE(checked, kFormat<TypeParam>.mantissa_bits == 3 ? 2 * 126 : 2 * 0x7bff);
}

TYPED_TEST(Element, WhatIsTooLarge) {
  const Format format = kFormat<TypeParam>;
  uint32_t largest = 0;
  while (std::isfinite(ValueOf(format, largest + 1))) {
    ++largest;
  }
  const double value = ValueOf(format, largest);
  const double half_step = (value - ValueOf(format, largest - 1)) / 2;
  const uint32_t beyond = format.has_infinity ? largest + 1 : largest;  // e4m3 stays at 448
  const float below = std::nextafter(static_cast<float>(value + half_step), 0.0f);
  EXPECT_EQ(FromFloat<TypeParam>(below).bits, largest);
  EXPECT_EQ(FromFloat<TypeParam>(static_cast<float>(value + half_step)).bits, beyond);
  EXPECT_EQ(FromFloat<TypeParam>(std::numeric_limits<float>::max()).bits, beyond);
  EXPECT_EQ(FromFloat<TypeParam>(kInfinity).bits, beyond);
  EXPECT_EQ(FromFloat<TypeParam>(-kInfinity).bits, this->kSign | beyond);
  for (uint32_t nan : {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xff800001u, 0xffffffffu}) {
    EXPECT_TRUE(std::isnan(ToFloat(FromFloat<TypeParam>(BitsToFloat(nan))))) << nan;
  }
}

TYPED_TEST(Element, WhatIsTooSmall) {
  const float smallest = ToFloat(this->Of(1));
  EXPECT_EQ(FromFloat<TypeParam>(0.0f).bits, 0);
  EXPECT_EQ(FromFloat<TypeParam>(-0.0f).bits, this->kSign);
  EXPECT_EQ(FromFloat<TypeParam>(smallest / 2).bits, 0);
  EXPECT_EQ(FromFloat<TypeParam>(-smallest / 2).bits, this->kSign);
  EXPECT_EQ(FromFloat<TypeParam>(std::numeric_limits<float>::denorm_min()).bits, 0);
}

TEST(Elements, PackPutsTheFirstIntoTheLowerHalf) {
  EXPECT_EQ(Pack<BF16>(1.0f, -2.0f), 0xc0003f80u);
  EXPECT_EQ(Pack<F16>(1.0f, -2.0f), 0xc0003c00u);
  EXPECT_EQ(UnpackLow<BF16>(0xc0003f80u), 1.0f);
  EXPECT_EQ(UnpackHigh<BF16>(0xc0003f80u), -2.0f);
  EXPECT_EQ(UnpackLow<F16>(0xc0003c00u), 1.0f);
  EXPECT_EQ(UnpackHigh<F16>(0xc0003c00u), -2.0f);
  EXPECT_EQ(Pack<BF16>(1.00390625f, 1.01171875f), 0x3f823f80u);  // halves, to even
}

TEST(Elements, FourOfE4M3InARegister) {
  float x[4];
  UnpackE4M3(0x7e'b8'01'38u, x);
  EXPECT_EQ(x[0], 1.0f);
  EXPECT_EQ(x[1], 0x1p-9f);
  EXPECT_EQ(x[2], -1.0f);
  EXPECT_EQ(x[3], 448.0f);
}

}  // namespace
}  // namespace attnd::kernels::cuda
