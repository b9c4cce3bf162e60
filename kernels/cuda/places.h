// Where rows lie in pages (cache_layout.h), as the kernels take it.
#pragma once

#include "kernels/cache_layout.h"
#include "kernels/cuda/attention_params.h"
#include "kernels/cuda/elementwise/row_place.h"

namespace attnd::kernels::cuda {

inline RowPlace PlaceOf(const PageRows& rows, int64_t head_step) {
  return {rows.dtype, rows.offset, head_step, rows.stride, rows.scales};
}

// Rows of the KV heads of a local layer lie page by page: 64 of a head, then the next head's.
inline RowPlace PlaceOf(const PageRows& rows, const LocalShape& /*shape*/) {
  return PlaceOf(rows, kPageTokens * rows.stride);
}

inline HeadRows HeadsOf(const RowPlace& place) {
  return {place.offset, place.head_step, place.stride};
}

// The latents, the same for every KV head.
inline RowPlace LatentPlace(const GlobalShape& shape, DType dtype) {
  return PlaceOf(LatentRows(shape, dtype), 0);
}

// The rope keys, those of a token's KV heads side by side.
inline RowPlace RopePlace(const GlobalShape& shape, DType dtype) {
  const PageRows rows = RopeRows(shape, dtype);
  return PlaceOf(rows, shape.d_rope * DTypeSize(rows.dtype));
}

}  // namespace attnd::kernels::cuda
