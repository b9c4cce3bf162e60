// Where the rows of the cache lie in a page, for every dtype, and how many bytes they take: the one
// place that kernels, the page pool, the planner and the reports ask.
//
//   f32, bf16, f16
//     local   keys [heads_kv][64][d_head], then values likewise
//     global  [64][d_latent + heads_kv * d_rope]: a row is [c | k_r of head 0 | k_r of 1 ...]
//   int8, with a float32 scale for each row of a head, or of latents
//     local   for each KV head keys [64][d_head] and their scales [64], then values likewise
//     global  latents [64][d_latent], their scales [64], then bf16 rope keys
//             [64][heads_kv * d_rope]: rotated keys may be far larger than latents
//   fp8_e4m3
//     local   as bf16: keys and values share no scale, and a local layer's cache is small
//     global  as int8, latents in e4m3
#pragma once

#include <cstdint>

#include "kernels/dtype.h"
#include "kernels/params.h"

namespace attnd::kernels {

// Rows of one kind in a page, in bytes: that of slot s is at offset + s * stride, and its scale,
// where the dtype has one, at scales + s * sizeof(float).
struct PageRows {
  DType dtype = DType::kF32;
  int64_t offset = 0;
  int64_t stride = 0;
  int64_t scales = 0;
  int64_t end = 0;  // of what is read with these rows, to be prefetched
};

PageRows KeyRows(const LocalShape& shape, DType dtype, int64_t head);
PageRows ValueRows(const LocalShape& shape, DType dtype, int64_t head);
// `end` is that of the page: rope keys are read with the latents.
PageRows LatentRows(const GlobalShape& shape, DType dtype);
// The rope keys of all KV heads.
PageRows RopeRows(const GlobalShape& shape, DType dtype);

// Of one layer and token, and of a page of kPageTokens of them.
int64_t TokenBytes(const LocalShape& shape, DType dtype);
int64_t TokenBytes(const GlobalShape& shape, DType dtype);
template <typename Shape>
int64_t PageBytes(const Shape& shape, DType dtype) {
  return kPageTokens * TokenBytes(shape, dtype);
}

// Stores a row of `width` values, and its scale, in its slot of a page. False when a value, as
// stored, is not finite.
bool StoreRow(const PageRows& rows, int64_t slot, const float* values, int64_t width,
              uint8_t* page);

// Zeroes the slots from `begin` on, their scales too: what a page held for others.
void ClearSlots(const LocalShape& shape, DType dtype, int64_t begin, uint8_t* page);
void ClearSlots(const GlobalShape& shape, DType dtype, int64_t begin, uint8_t* page);

// Of a stored row; 1 where the dtype has none.
float ScaleOf(const PageRows& rows, int64_t slot, const uint8_t* page);

}  // namespace attnd::kernels
