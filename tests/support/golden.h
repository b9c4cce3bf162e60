// The cases of tests/golden, and the measure by which an answer passes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace attnd {

// The directory that holds a folder per model.
std::string GoldenDir();
// "apex1_tiny", "odd" ...: all seven.
std::vector<std::string> GoldenModels();

// A full forward pass of one layer: x [len, d_model] gives y [len, d_model].
struct GoldenCase {
  int64_t layer = 0;
  int64_t len = 0;
  int64_t prefix = 0;
  int64_t d_model = 0;
  std::vector<float> x;
  std::vector<float> y;
};

// The cases in DIR/cases.safetensors, ordered by layer, length and prefix; never none.
absl::StatusOr<std::vector<GoldenCase>> LoadGolden(const std::string& model_dir);

// Tolerances of the README in tests/golden.
inline constexpr double kGoldenF32 = 1e-5;
inline constexpr double kGoldenHalfStorage = 1e-2;
inline constexpr double kGoldenInt8Cache = 2e-2;
inline constexpr double kGoldenHalfCompute = 2e-2;
inline constexpr double kGoldenFp8Cache = 8e-2;

struct Verdict {
  bool passed = false;
  double relative = 0;  // |out - y| / |y|, Frobenius
  double worst = 0;     // the largest |out_i - y_i|
  std::string text;     // all numbers, for a failed assertion
};

// Passes when |out - y| <= tolerance * |y| and no element is off by more than
// 100 * tolerance * max|y|. A NaN or infinity anywhere, or sizes that differ, never pass.
Verdict Compare(const std::vector<float>& out, const std::vector<float>& y, double tolerance);

}  // namespace attnd
