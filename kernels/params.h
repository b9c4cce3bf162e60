// Plain structs through which core speaks to a backend. A shape stands behind every pointer;
// indices are row-major; offsets are int64 bytes. Pointers are of the backend's memory.
#pragma once

#include <cstdint>

#include "kernels/dtype.h"

namespace attnd::kernels {

// Tokens of one layer in one page of the pool.
inline constexpr int64_t kPageTokens = 64;

// A sliding-window layer: grouped-query attention. heads_q is a multiple of heads_kv.
// Its pages: cache_layout.h.
struct LocalShape {
  int64_t heads_q = 0;
  int64_t heads_kv = 0;
  int64_t d_head = 0;

  int64_t group() const { return heads_q / heads_kv; }
  int64_t row_elements() const { return 2 * heads_kv * d_head; }  // cached per token

  bool operator==(const LocalShape&) const = default;
};

// A global layer: multi-head latent attention, a rope key per KV head.
// Its pages: cache_layout.h.
struct GlobalShape {
  int64_t heads_q = 0;
  int64_t heads_kv = 0;
  int64_t d_head = 0;
  int64_t d_rope = 0;
  int64_t d_latent = 0;

  int64_t group() const { return heads_q / heads_kv; }
  int64_t row_elements() const { return d_latent + heads_kv * d_rope; }  // cached per token

  bool operator==(const GlobalShape&) const = default;
};

// A weight as stored: [groups][out][in], used as y = x * Wᵀ within each group; with `transposed`
// it is stored [groups][in][out] (the absorbed form reads W_UK that way).
struct WeightView {
  const void* data = nullptr;  // of host memory, any alignment
  DType dtype = DType::kF32;
  int64_t groups = 1;
  int64_t out = 0;
  int64_t in = 0;
  bool transposed = false;
};

class PackedWeight;

// y(r, g, i, n) = sum_k x(r, g, i, k) * W(g, n, k). With groups = 1 and inner = 1 a plain
// projection; the absorbed form uses groups = heads_kv and inner = G query heads of a KV head.
//   x(r, g, i, k) at x[r * x_row + (g * inner + i) * x_inner + k]
//   y(r, g, i, n) at y[r * y_row + (g * inner + i) * y_inner + n]
// A row's bits depend on that row alone, never on `rows`.
struct ProjectParams {
  const PackedWeight* weight = nullptr;
  int64_t rows = 0;
  int64_t inner = 1;
  const float* x = nullptr;
  int64_t x_row = 0;
  int64_t x_inner = 0;
  float* y = nullptr;
  int64_t y_row = 0;
  int64_t y_inner = 0;

  bool operator==(const ProjectParams&) const = default;
};

// Rotates interleaved pairs in place: x [rows][heads][2 * half], cos and sin [rows][half].
struct RopeParams {
  float* x = nullptr;
  const float* cos = nullptr;
  const float* sin = nullptr;
  int64_t rows = 0;
  int64_t heads = 0;
  int64_t half = 0;

  bool operator==(const RopeParams&) const = default;
};

// Where the rows of a batch go: row r of the batch is written to slot `slot[r]` of the page at
// byte `page[r]` of the pool. `not_finite[r]` is set to 1 when a value of the row, as stored, is
// a NaN or an infinity (also by overflow of f16); it is never cleared.
struct AppendTarget {
  uint8_t* pool = nullptr;
  DType dtype = DType::kF32;
  const int64_t* page = nullptr;  // [rows]
  const int32_t* slot = nullptr;  // [rows]
  uint8_t* not_finite = nullptr;  // [rows]
  int64_t rows = 0;

  bool operator==(const AppendTarget&) const = default;
};

struct AppendLocalParams {
  LocalShape shape;
  AppendTarget target;
  const float* key = nullptr;    // [rows][heads_kv][d_head], rotated
  const float* value = nullptr;  // [rows][heads_kv][d_head]

  bool operator==(const AppendLocalParams&) const = default;
};

struct AppendGlobalParams {
  GlobalShape shape;
  AppendTarget target;
  const float* latent = nullptr;    // [rows][d_latent]
  const float* rope_key = nullptr;  // [rows][heads_kv][d_rope], rotated

  bool operator==(const AppendGlobalParams&) const = default;
};

// The query rows of one sequence in an attention batch, and the pages that hold its keys. Token
// t lies in pages[t / kPageTokens - first_page]. Memory beyond the keys that some row of the
// batch sees is never read as a value (it may hold NaN).
struct AttentionSequence {
  const int64_t* pages = nullptr;  // byte offsets into the pool
  int64_t first_page = 0;          // page index (token / kPageTokens) of pages[0]
  int64_t row_begin = 0;           // rows [row_begin, row_begin + rows) of the batch
  int64_t rows = 0;
};

// A ragged batch. Row r sees the keys [lo[r], hi[r]) of its sequence; lo and hi never decrease
// within a sequence. An empty interval gives a zero row.
struct AttentionBatch {
  const uint8_t* pool = nullptr;
  DType dtype = DType::kF32;
  const AttentionSequence* sequences = nullptr;
  int64_t num_sequences = 0;
  const int64_t* lo = nullptr;  // [rows]
  const int64_t* hi = nullptr;  // [rows]
  float scale = 0;              // multiplies q . k
};

struct LocalAttentionParams {
  LocalShape shape;
  AttentionBatch batch;
  const float* query = nullptr;  // [rows][heads_q][d_head], rotated
  float* output = nullptr;       // [rows][heads_q][d_head]
};

// Absorbed form: attention in the space of latents.
struct LatentAttentionParams {
  GlobalShape shape;
  AttentionBatch batch;
  const float* query = nullptr;       // [rows][heads_q][d_latent], q_c * W_UK of the KV head
  const float* rope_query = nullptr;  // [rows][heads_q][d_rope], rotated
  float* output = nullptr;            // [rows][heads_q][d_latent]
};

// Decompressed form: keys and values are expanded from the latents, a bounded block of the
// history at a time, and the blocks merged.
struct ExpandedAttentionParams {
  GlobalShape shape;
  AttentionBatch batch;
  const PackedWeight* expand_key = nullptr;    // groups heads_kv, out d_head, in d_latent
  const PackedWeight* expand_value = nullptr;  // likewise
  const float* query = nullptr;                // [rows][heads_q][d_head]
  const float* rope_query = nullptr;           // [rows][heads_q][d_rope], rotated
  float* output = nullptr;                     // [rows][heads_q][d_head]
};

// The shadow of a global layer: its keys and values, decompressed once and kept.
// Page: [heads_kv][kPageTokens][2 * d_head + d_rope], a row is [key | rope key | value]. Always
// float32: beside the cache it adds no rounding, and a float16 key cannot overflow where its
// latent did not. It is as fast as bf16, for float32 keys are read in place.
struct ShadowShape {
  int64_t heads_q = 0;
  int64_t heads_kv = 0;
  int64_t d_head = 0;
  int64_t d_rope = 0;

  int64_t key_width() const { return d_head + d_rope; }
  int64_t head_elements() const { return key_width() + d_head; }  // per token and KV head
  int64_t row_elements() const { return heads_kv * head_elements(); }
};
constexpr ShadowShape ShadowOf(const GlobalShape& shape) {
  return {shape.heads_q, shape.heads_kv, shape.d_head, shape.d_rope};
}

// Rows of latent pages to decompress: that in slot `slot[r]` of the page at byte `page[r]` of the
// pool goes to the same slot of the page at byte `shadow_page[r]` of the shadow.
struct FillShadowParams {
  GlobalShape shape;
  const uint8_t* pool = nullptr;
  DType dtype = DType::kF32;  // of the latent pages
  uint8_t* shadow = nullptr;
  const int64_t* page = nullptr;         // [rows]
  const int64_t* shadow_page = nullptr;  // [rows]
  const int32_t* slot = nullptr;         // [rows]
  int64_t rows = 0;
  const PackedWeight* expand_key = nullptr;    // groups heads_kv, out d_head, in d_latent
  const PackedWeight* expand_value = nullptr;  // likewise
};

struct ShadowAttentionParams {
  ShadowShape shape;
  AttentionBatch batch;               // pool and pages of the shadow, float32
  const float* query = nullptr;       // [rows][heads_q][d_head]
  const float* rope_query = nullptr;  // [rows][heads_q][d_rope], rotated
  float* output = nullptr;            // [rows][heads_q][d_head]
};

}  // namespace attnd::kernels
