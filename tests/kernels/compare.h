// How tests of kernels make numbers and compare them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "kernels/dtype.h"

namespace attnd::kernels {

// A seeded source; uniform in [-1, 1].
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  float Uniform() { return distribution_(engine_); }
  std::vector<float> Floats(int64_t n);
  int64_t Below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }

 private:
  std::mt19937_64 engine_;
  std::uniform_real_distribution<float> distribution_{-1.0f, 1.0f};
};

// The values after a trip through `dtype`, and the bytes of that trip.
std::vector<float> Rounded(DType dtype, const std::vector<float>& values);
std::vector<uint8_t> Stored(DType dtype, const std::vector<float>& values);
// Likewise, for any dtype of a cache: rows of `width` values, for a row may have a scale.
std::vector<float> RoundedRows(DType dtype, const std::vector<float>& values, int64_t width);

// First the same positions of NaN and infinities, then the Frobenius error relative to `want`
// within `tolerance`, and no element off by more than 100 times that of the largest.
::testing::AssertionResult Close(const std::vector<float>& got, const std::vector<double>& want,
                                 double tolerance);

// Every bit.
::testing::AssertionResult SameBits(const std::vector<float>& got, const std::vector<float>& want);

inline constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();

}  // namespace attnd::kernels
