#include "kernels/reference/attention.h"

#include <algorithm>
#include <cmath>

namespace attnd::kernels {

ReferenceInterval ReferenceVisible(int64_t row, int64_t prefix, int64_t window) {
  if (row < prefix) {
    return {0, prefix};
  }
  const int64_t lo = window > 0 ? std::max<int64_t>(0, row - window + 1) : 0;
  return {lo, row + 1};
}

std::vector<double> ReferenceAttend(const ReferenceHead& head, int64_t row,
                                    ReferenceInterval interval) {
  std::vector<double> output(static_cast<size_t>(head.value_width), 0.0);
  if (interval.lo >= interval.hi) {
    return output;
  }
  std::vector<double> scores;
  for (int64_t j = interval.lo; j < interval.hi; ++j) {
    double dot = 0;
    for (int64_t k = 0; k < head.key_width; ++k) {
      dot += head.query[row * head.query_stride + k] * head.key[j * head.key_stride + k];
    }
    scores.push_back(dot * head.scale);
  }
  const double max = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& score : scores) {
    score = std::exp(score - max);
    sum += score;
  }
  for (int64_t j = interval.lo; j < interval.hi; ++j) {
    const double weight = scores[static_cast<size_t>(j - interval.lo)] / sum;
    for (int64_t n = 0; n < head.value_width; ++n) {
      output[static_cast<size_t>(n)] += weight * head.value[j * head.value_stride + n];
    }
  }
  return output;
}

}  // namespace attnd::kernels
