// Attention for every shape and dtype, in float32 and without tensor cores: what serves where the
// tuned kernels do not reach, and what they are compared with.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention_params.h"
#include "kernels/cuda/elementwise/row_place.h"

namespace attnd::kernels::cuda {

class Stream;

// Keys and values of KV head h lie as `content`, `rope` and `value` say. The latents of multi-head
// latent attention are content and value, the same for every KV head.
struct PlainParams : HeadOperands {
  BatchView batch = {};  // sequences in the order of their rows
  int32_t rows = 0;
  RowPlace content = {}, rope = {}, value = {};
};

// Of shared memory that a block needs.
int64_t PlainSharedBytes(int64_t content_width, int64_t rope_width, int64_t value_width);

void LaunchPlainAttention(Stream& stream, int blocks, const PlainParams& params);

}  // namespace attnd::kernels::cuda
