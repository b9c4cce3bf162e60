#include "tests/kernels/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/convert.h"

namespace attnd::kernels {

std::vector<float> Random::Floats(int64_t n) {
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) {
    value = Uniform();
  }
  return values;
}

std::vector<uint8_t> Stored(DType dtype, const std::vector<float>& values) {
  const int64_t n = static_cast<int64_t>(values.size());
  std::vector<uint8_t> bytes(static_cast<size_t>(n * DTypeSize(dtype)));
  FromFloat(dtype, values.data(), n, bytes.data());
  return bytes;
}

std::vector<float> Rounded(DType dtype, const std::vector<float>& values) {
  std::vector<float> rounded(values.size());
  ToFloat(dtype, Stored(dtype, values).data(), static_cast<int64_t>(values.size()), rounded.data());
  return rounded;
}

std::vector<float> RoundedRows(DType dtype, const std::vector<float>& values, int64_t width) {
  if (!HasRowScales(dtype)) {
    return Rounded(dtype, values);
  }
  std::vector<float> rounded(values.size());
  std::vector<uint8_t> units(static_cast<size_t>(width));
  for (size_t begin = 0; begin < values.size(); begin += units.size()) {
    float scale = 0;
    const bool int8 = dtype == DType::kInt8;
    if (int8) {
      Quantize(values.data() + begin, width, reinterpret_cast<int8_t*>(units.data()), &scale);
    } else {
      QuantizeE4M3(values.data() + begin, width, units.data(), &scale);
    }
    for (size_t k = 0; k < units.size(); ++k) {
      const float unit = int8 ? static_cast<int8_t>(units[k]) : WidenE4M3(units[k]);
      rounded[begin + k] = unit * scale;
    }
  }
  return rounded;
}

::testing::AssertionResult Close(const std::vector<float>& got, const std::vector<double>& want,
                                 double tolerance) {
  if (got.size() != want.size()) {
    return ::testing::AssertionFailure() << got.size() << " values, expected " << want.size();
  }
  double error = 0;
  double norm = 0;
  double worst = 0;
  double largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const bool special = !std::isfinite(got[i]) || !std::isfinite(want[i]);
    const bool same = std::isnan(got[i]) ? std::isnan(want[i]) : got[i] == want[i];
    if (special && !same) {
      return ::testing::AssertionFailure()
             << "element " << i << " is " << got[i] << ", expected " << want[i];
    }
    if (!special) {
      const double difference = std::abs(got[i] - want[i]);
      error += difference * difference;
      norm += want[i] * want[i];
      worst = std::max(worst, difference);
      largest = std::max(largest, std::abs(want[i]));
    }
  }
  if (std::sqrt(error) > tolerance * std::sqrt(norm) || worst > 100 * tolerance * largest) {
    return ::testing::AssertionFailure()
           << "relative error " << std::sqrt(error / std::max(norm, 1e-300)) << ", worst element "
           << worst << " of " << largest << ", tolerance " << tolerance;
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult SameBits(const std::vector<float>& got, const std::vector<float>& want) {
  if (got.size() != want.size()) {
    return ::testing::AssertionFailure() << got.size() << " values, expected " << want.size();
  }
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::memcmp(&got[i], &want[i], sizeof(float)) != 0) {
      return ::testing::AssertionFailure() << "element " << i << " of " << got.size() << " is "
                                           << got[i] << ", expected " << want[i];
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace attnd::kernels
