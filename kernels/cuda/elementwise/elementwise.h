// The small kernels around matrix products and attention: rotations, conversions, rows into pages
// and out of them. All are bound by memory or by their launch.
#pragma once

#include <cstdint>

#include "kernels/cuda/elementwise/row_place.h"
#include "kernels/dtype.h"
#include "kernels/params.h"

namespace attnd::kernels::cuda {

class Stream;

// Rows of an operand of ProjectParams as the matrix product takes them: row m of group g is
//   at[(m / inner) * row + (g * inner + m % inner) * inner_step + k].
struct OperandRows {
  int64_t row = 0;
  int64_t inner_step = 0;
  int32_t inner = 1;

  bool operator==(const OperandRows&) const = default;
};

// packed[g][i][k] = x(row_begin + i, g, k) as dtype, zero from `rows` on.
struct PackRowsParams {
  const float* x = nullptr;
  void* packed = nullptr;  // [groups][padded][width]
  OperandRows from;
  DType dtype = DType::kF32;
  int64_t row_begin = 0;
  int64_t rows = 0;
  int64_t padded = 0;
  int64_t width = 0;
  int32_t groups = 1;
};
void LaunchPackRows(Stream& stream, int blocks, const PackRowsParams& params);

// y(row_begin + i, g, n) = product[g][i][n] for i < rows.
struct UnpackRowsParams {
  const float* product = nullptr;  // [groups][padded][width]
  float* y = nullptr;
  OperandRows to;
  int64_t row_begin = 0;
  int64_t rows = 0;
  int64_t padded = 0;
  int64_t width = 0;
  int32_t groups = 1;
};
void LaunchUnpackRows(Stream& stream, int blocks, const UnpackRowsParams& params);

void LaunchRope(Stream& stream, int blocks, const RopeParams& params);

void LaunchAppendLocal(Stream& stream, int blocks, const AppendLocalParams& params);
void LaunchAppendGlobal(Stream& stream, int blocks, const AppendGlobalParams& params);

// latents[i][k] of tokens first + i, as dtype; zero from `tokens` on.
struct GatherLatentsParams {
  const uint8_t* pool = nullptr;
  const int64_t* pages = nullptr;  // token t lies in pages[t / 64 - first_page]
  int64_t first_page = 0;
  RowPlace latents;
  void* gathered = nullptr;  // [padded][width]
  DType dtype = DType::kF32;
  int64_t first = 0;
  int64_t tokens = 0;
  int64_t padded = 0;
  int64_t width = 0;
};
void LaunchGatherLatents(Stream& stream, int blocks, const GatherLatentsParams& params);

// Expanded keys and values into pages of their own: for 64 tokens from a multiple of 64, keys
// [heads_kv][64][d_head + d_rope], a row [content | rope], then values [heads_kv][64][d_head]. The
// page of token t is t / 64 - first / 64; of the others' slots nothing is written.
struct WriteExpandedParams {
  const uint8_t* pool = nullptr;   // of the rope keys
  const int64_t* pages = nullptr;  // as in GatherLatentsParams
  int64_t first_page = 0;
  RowPlace ropes;                 // head_step: of a KV head within the row, in bytes
  const float* keys = nullptr;    // [heads_kv][padded][d_head] of tokens first + i
  const float* values = nullptr;  // likewise
  uint8_t* expanded = nullptr;
  DType dtype = DType::kF32;  // of what is written
  int64_t first = 0;
  int64_t tokens = 0;
  int64_t padded = 0;
  int32_t heads_kv = 0;
  int32_t d_head = 0;
  int32_t d_rope = 0;
};
void LaunchWriteExpanded(Stream& stream, int blocks, const WriteExpandedParams& params);

}  // namespace attnd::kernels::cuda
