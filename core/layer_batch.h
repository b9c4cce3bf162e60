// The rows of one batch on one layer, as the layer's mathematics needs them. Pointers are of the
// backend's memory unless said otherwise.
#pragma once

#include <cstdint>

#include "kernels/params.h"

namespace attnd {

struct LayerBatch {
  // Rows whose keys are written.
  int64_t append_rows = 0;
  const float* append_x = nullptr;                           // [append_rows][d_model]
  const float *append_cos = nullptr, *append_sin = nullptr;  // [append_rows][half]
  kernels::AppendTarget target;

  // Rows that are answered; where they are the appended ones, the pointers are the same.
  int64_t query_rows = 0;
  const float* query_x = nullptr;                          // [query_rows][d_model]
  const float *query_cos = nullptr, *query_sin = nullptr;  // [query_rows][half]
  kernels::AttentionBatch attention;                       // over all query rows
  // On global layers rows [0, shadow_end) attend over shadows, of which their sequences have the
  // pages; those up to absorbed_end in the absorbed form; the others expanded.
  int64_t shadow_end = 0;
  int64_t absorbed_end = 0;
  // Rows to decompress into shadows before that; without its weights.
  kernels::FillShadowParams fill;
  float* output = nullptr;  // [query_rows][d_model]
};

}  // namespace attnd
