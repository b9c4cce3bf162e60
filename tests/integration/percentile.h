// Percentiles of few values.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace attnd {

// By nearest rank: the smallest value that p percent of all do not exceed.
inline double Percentile(std::vector<double> values, double p) {
  std::sort(values.begin(), values.end());
  const auto rank = static_cast<size_t>(std::ceil(p / 100 * static_cast<double>(values.size())));
  return values.at(std::max<size_t>(rank, 1) - 1);
}

}  // namespace attnd
