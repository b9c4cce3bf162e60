// Attention for every shape and dtype, in float32 and without tensor cores: what serves where the
// tuned kernels do not reach, and what they are compared with.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention_params.h"
#include "kernels/cuda/elementwise/row_place.h"

namespace attnd::kernels::cuda {

class Stream;

// A key is [content | rope]; keys and values of KV head h as `content`, `rope` and `value` say. The
// latents of multi-head latent attention are content and value, the same for every KV head.
struct PlainParams {
  BatchView batch;  // sequences in the order of their rows
  int32_t rows = 0;
  RowPlace content, rope, value;
  const float* query = nullptr;       // [rows][heads_kv * group][content_width]
  const float* rope_query = nullptr;  // [rows][heads_kv * group][rope_width]
  float* output = nullptr;            // [rows][heads_kv * group][value_width]
  // As in GqaParams.
  float* carry = nullptr;
  int64_t carry_begin = 0;
  int64_t carry_end = 0;
  bool carry_first = false;
  bool carry_last = false;
  int32_t heads_kv = 0;
  int32_t group = 0;
  int32_t content_width = 0;
  int32_t rope_width = 0;
  int32_t value_width = 0;
  float scale_log2 = 0;
};

// Of shared memory that a block needs.
int64_t PlainSharedBytes(int64_t content_width, int64_t rope_width, int64_t value_width);

void LaunchPlainAttention(Stream& stream, int blocks, const PlainParams& params);

}  // namespace attnd::kernels::cuda
