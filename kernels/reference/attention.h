// Scaled dot-product attention in float64: the formula, for one head.
#pragma once

#include <cstdint>
#include <vector>

namespace attnd::kernels {

// Keys [lo, hi) that a row sees.
struct ReferenceInterval {
  int64_t lo = 0;
  int64_t hi = 0;
};

// What row `row` sees: the whole prefix and nothing else inside a bidirectional prefix of
// `prefix` rows; beyond it, itself and what came before, of which only the last `window` keys
// (itself included) when window > 0.
ReferenceInterval ReferenceVisible(int64_t row, int64_t prefix, int64_t window);

// o_i = sum_j softmax_j(q_i . k_j * scale) v_j over the keys that row i sees.
struct ReferenceHead {
  int64_t key_width = 0;
  int64_t value_width = 0;
  double scale = 0;
  const double* query = nullptr;  // [rows][key_width], query_stride apart; the others likewise
  int64_t query_stride = 0;
  const double* key = nullptr;
  int64_t key_stride = 0;
  const double* value = nullptr;
  int64_t value_stride = 0;
};

// One row's output [value_width]; zero when the interval is empty.
std::vector<double> ReferenceAttend(const ReferenceHead& head, int64_t row,
                                    ReferenceInterval interval);

}  // namespace attnd::kernels
