// Frequencies, and rows of cosines and sines by the addition theorem.
#include "core/rope.h"

#include <cmath>
#include <numbers>

#include "kernels/check.h"

namespace attnd {
namespace {

constexpr double kBetaFast = 32;
constexpr double kBetaSlow = 1;

// APEX-1's form of YaRN: short waves stay, long ones are stretched by rho, between them a ramp
// over the wavelength.
double StretchedFrequency(double theta, double rho) {
  const double wavelength = 2 * std::numbers::pi / theta;
  if (wavelength < kBetaFast) {
    return theta;  // wins also where rho is so small that the next case would hold as well
  }
  if (wavelength > kBetaSlow * rho) {
    return theta / rho;
  }
  const double u = (wavelength / kBetaSlow - 1) / (rho - 1);
  return theta / (u * rho + 1 - u);
}

// Cosines and sines of rows 0, stride, 2 * stride ... of positions.
void FillTable(const std::vector<double>& theta, int64_t rows, int64_t stride,
               std::vector<double>* cos, std::vector<double>* sin) {
  cos->resize(rows * theta.size());
  sin->resize(rows * theta.size());
  size_t at = 0;
  for (int64_t row = 0; row < rows; ++row) {
    for (const double frequency : theta) {
      const double angle = static_cast<double>(row * stride) * frequency;
      (*cos)[at] = std::cos(angle);
      (*sin)[at] = std::sin(angle);
      ++at;
    }
  }
}

}  // namespace

std::vector<double> RopeFrequencies(const RopeSpec& spec) {
  Check(spec.width >= 2 && spec.width % 2 == 0, "the rotated width is even");
  Check(spec.base > 0 && spec.scaling >= 1, "rope_base is positive, rope_scaling at least 1");
  std::vector<double> theta(spec.width / 2);
  for (size_t t = 0; t < theta.size(); ++t) {
    const double exponent = -2.0 * static_cast<double>(t) / static_cast<double>(spec.width);
    const double plain = std::pow(spec.base, exponent);
    theta[t] = spec.scaling > 1 ? StretchedFrequency(plain, spec.scaling) : plain;
  }
  return theta;
}

RopeTable::RopeTable(const RopeSpec& spec, int64_t max_positions)
    : half_(spec.width / 2), max_positions_(max_positions) {
  Check(max_positions >= 1, "a table has a position");
  // Two tables of about equal length are the smallest pair.
  while ((int64_t{1} << (2 * low_bits_)) < max_positions) {
    ++low_bits_;
  }
  const int64_t low_rows = int64_t{1} << low_bits_;
  const std::vector<double> theta = RopeFrequencies(spec);
  FillTable(theta, low_rows, 1, &low_cos_, &low_sin_);
  FillTable(theta, (max_positions - 1) / low_rows + 1, low_rows, &high_cos_, &high_sin_);
}

void RopeTable::Row(int64_t position, float* cos, float* sin) const {
  Check(position >= 0 && position < max_positions_, "a position of the table");
  const int64_t low = (position & ((int64_t{1} << low_bits_) - 1)) * half_;
  const int64_t high = (position >> low_bits_) * half_;
  const double* lc = low_cos_.data() + low;
  const double* ls = low_sin_.data() + low;
  const double* hc = high_cos_.data() + high;
  const double* hs = high_sin_.data() + high;
  for (int64_t t = 0; t < half_; ++t) {
    cos[t] = static_cast<float>(hc[t] * lc[t] - hs[t] * ls[t]);
    sin[t] = static_cast<float>(hs[t] * lc[t] + hc[t] * ls[t]);
  }
}

}  // namespace attnd
