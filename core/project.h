// A plain projection y = x Wᵀ of contiguous rows, as both kinds of layers use it.
#pragma once

#include <cstdint>

#include "core/layer_weights.h"
#include "kernels/backend.h"

namespace attnd {

inline void Project(const Packed& weight, const float* x, int64_t in, float* y, int64_t out,
                    int64_t rows, kernels::Backend* backend) {
  kernels::ProjectParams params;
  params.weight = weight.get();
  params.rows = rows;
  params.x = x;
  params.x_row = in;
  params.x_inner = in;
  params.y = y;
  params.y_row = out;
  params.y_inner = out;
  backend->Project(params);
}

}  // namespace attnd
