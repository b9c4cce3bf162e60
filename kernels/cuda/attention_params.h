// What the attention kernels of the device are told. Plain data, included by device and host code:
// no header of the host's libraries here.
#pragma once

#include <cstdint>

namespace attnd::kernels::cuda {

// One sequence of a batch, as the device sees it. Token t lies in
// pages[page_table + t / 64 - first_page].
struct SequenceView {
  int64_t page_table = 0;
  int64_t first_page = 0;
  int64_t key_begin = 0;  // the lowest key and one past the highest that some row of it sees;
  int64_t key_end = 0;    // equal when none sees any
  int32_t row_begin = 0;
  int32_t rows = 0;
};

// A ragged batch in device memory. Row r (of all sequences) sees the keys [lo[r], hi[r]) of its
// sequence; both never decrease within a sequence. Memory beyond what some row sees is not read as
// a value: it may hold NaN.
struct BatchView {
  const uint8_t* pool = nullptr;
  const SequenceView* sequences = nullptr;  // [num_sequences]
  const int64_t* pages = nullptr;           // byte offsets into the pool
  const int64_t* lo = nullptr;              // [rows]
  const int64_t* hi = nullptr;              // [rows]
  int32_t num_sequences = 0;

  bool operator==(const BatchView&) const = default;
};

// How keys are split between blocks. A split is `split_keys` keys (a multiple of 64) from a
// multiple of it, so that what a row is added up from does not depend on what else is in the batch.
// The scheduling kernel (schedule.cuh) fills `work_begin` and `split_keys` from the lengths, on the
// device: the grid is fixed and a captured graph stays right while lengths grow.
struct Schedule {
  int64_t* work_begin = nullptr;  // [num_sequences + 1] work items before a sequence; the last: all
  int32_t* split_keys = nullptr;  // [1]
  int32_t* arrivals = nullptr;    // [max_work] of a tile's splits, at its first work item; zero
                                  // before and after a launch
  float* partial = nullptr;       // [max_work][tile_rows][value_width + 2]: (m, l, O not divided)
  int32_t max_work = 0;           // the host cuts a batch that would need more
};

// Where a layer's keys and values of KV head h lie in a page: row of slot s at
// offset + h * head_step + s * stride, in bytes.
struct HeadRows {
  int64_t offset = 0;
  int64_t head_step = 0;
  int64_t stride = 0;
};

// Scores are exponents of 2: what multiplies q . k is scale * log2(e).
constexpr float ScaleLog2(double scale) { return static_cast<float>(scale * 1.4426950408889634); }

// What attention over the keys and values of KV heads works on. A key is [content | rope]; the rope
// part is empty on local layers.
struct HeadOperands {
  const float* query = nullptr;       // [rows][heads_kv * group][content_width]
  const float* rope_query = nullptr;  // [rows][heads_kv * group][rope_width]; null when it is 0
  float* output = nullptr;            // [rows][heads_kv * group][value_width]
  // State carried between launches over blocks of one history, [rows][heads][value_width + 2] as a
  // partial; null: none. Only without splits: with `carry` the batch has one split, which spans
  // [carry_begin, carry_end) of the keys.
  float* carry = nullptr;
  int64_t carry_begin = 0;
  int64_t carry_end = 0;
  bool carry_first = false;  // nothing to load
  bool carry_last = false;   // the output is written, not the state
  int32_t heads_kv = 0;
  int32_t group = 0;
  int32_t content_width = 0;
  int32_t rope_width = 0;
  int32_t value_width = 0;
  float scale_log2 = 0;
};

// Grouped-query attention: local layers, and global ones over expanded keys. The rows of a tile are
// pairs (row of the sequence, query head of one KV head): index row * group + g. Elements of the
// cache and of the tensor cores are E (bf16 or f16).
struct GqaParams : HeadOperands {
  BatchView batch = {};
  Schedule schedule = {};
  HeadRows keys = {};
  HeadRows values = {};
};

// Absorbed multi-head latent attention: query heads of all KV heads against the same latents, each
// KV head with its rope key. The rows of a tile are units of 16 pairs (row, query head) of one KV
// head.
struct LatentParams {
  BatchView batch;
  Schedule schedule;
  // Latents: row of slot s at offset + s * stride; with fp8 its float32 scale at scales + 4 s.
  int64_t latent_offset = 0, latent_stride = 0, scales = 0;
  // Rope keys: that of KV head h in slot s at rope_offset + s * rope_stride + h * d_rope elements.
  int64_t rope_offset = 0, rope_stride = 0;
  const float* query = nullptr;       // [rows][heads_kv * group][d_latent], absorbed
  const float* rope_query = nullptr;  // [rows][heads_kv * group][d_rope]
  float* output = nullptr;            // [rows][heads_kv * group][d_latent]
  int32_t heads_kv = 0;
  int32_t group = 0;
  int32_t d_latent = 0;
  int32_t d_rope = 0;
  float scale_log2 = 0;
};

}  // namespace attnd::kernels::cuda
