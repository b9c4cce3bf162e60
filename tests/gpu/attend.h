// Attention of one sequence by the kernel that takes it: tensor cores where they can, else plain.
#pragma once

#include <cstdint>

#include "kernels/cuda/elementwise/row_place.h"
#include "kernels/params.h"
#include "tests/gpu/batch.h"
#include "tests/gpu/device.h"

namespace attnd::gpu {

using kernels::cuda::RowPlace;

struct Sequence {
  const uint8_t* pool = nullptr;
  const int64_t* pages = nullptr;  // from token 0 on
  Intervals rows;
};

// As PlainParams has it; content and rope of a row lie side by side.
struct HeadAttention {
  int64_t heads_kv = 0, group = 0;
  RowPlace content, rope, value;
  int64_t content_width = 0, rope_width = 0, value_width = 0;
  double scale = 0;
  const float* query = nullptr;
  const float* rope_query = nullptr;
  float* output = nullptr;
};

// True when tensor cores did it.
bool Attend(Device& device, const Sequence& sequence, const HeadAttention& attention);
bool AttendLatents(Device& device, const Sequence& sequence, const kernels::GlobalShape& shape,
                   DType cache, double scale, const float* query, const float* rope_query,
                   float* output);

}  // namespace attnd::gpu
