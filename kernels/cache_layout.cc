#include "kernels/cache_layout.h"

#include <cstring>

#include "kernels/convert.h"

namespace attnd::kernels {
namespace {

// Of the scale of a row.
int64_t ScaleBytes(DType dtype) {
  return HasRowScales(dtype) ? static_cast<int64_t>(sizeof(float)) : 0;
}

DType RopeDType(DType dtype) { return HasRowScales(dtype) ? DType::kBF16 : dtype; }

DType LocalDType(DType dtype) { return dtype == DType::kFp8E4M3 ? DType::kBF16 : dtype; }

int64_t RopeBytes(const GlobalShape& shape, DType dtype) {
  return shape.heads_kv * shape.d_rope * DTypeSize(RopeDType(dtype));
}

// Rows of `width` elements one after the other, then their scales.
PageRows Packed(DType dtype, int64_t offset, int64_t width) {
  PageRows rows;
  rows.dtype = dtype;
  rows.offset = offset;
  rows.stride = width * DTypeSize(dtype);
  rows.scales = offset + kPageTokens * rows.stride;
  rows.end = rows.scales + kPageTokens * ScaleBytes(dtype);
  return rows;
}

PageRows HeadRows(const LocalShape& shape, DType dtype, int64_t index) {
  const int64_t bytes = PageBytes(shape, dtype) / (2 * shape.heads_kv);
  return Packed(LocalDType(dtype), index * bytes, shape.d_head);
}

void ClearRows(const PageRows& rows, int64_t width, int64_t begin, uint8_t* page) {
  const auto bytes = static_cast<size_t>(width * DTypeSize(rows.dtype));
  for (int64_t slot = begin; slot < kPageTokens; ++slot) {
    std::memset(page + rows.offset + slot * rows.stride, 0, bytes);
    std::memset(page + rows.scales + slot * ScaleBytes(rows.dtype), 0,
                static_cast<size_t>(ScaleBytes(rows.dtype)));
  }
}

}  // namespace

PageRows KeyRows(const LocalShape& shape, DType dtype, int64_t head) {
  return HeadRows(shape, dtype, head);
}

PageRows ValueRows(const LocalShape& shape, DType dtype, int64_t head) {
  return HeadRows(shape, dtype, shape.heads_kv + head);
}

PageRows LatentRows(const GlobalShape& shape, DType dtype) {
  PageRows rows = Packed(dtype, 0, shape.d_latent);
  if (!HasRowScales(dtype)) {
    rows.stride = TokenBytes(shape, dtype);
  }
  rows.end = PageBytes(shape, dtype);
  return rows;
}

PageRows RopeRows(const GlobalShape& shape, DType dtype) {
  PageRows rows;
  rows.dtype = RopeDType(dtype);
  const bool apart = HasRowScales(dtype);
  rows.offset = apart ? Packed(dtype, 0, shape.d_latent).end : shape.d_latent * DTypeSize(dtype);
  rows.stride = apart ? RopeBytes(shape, dtype) : TokenBytes(shape, dtype);
  rows.end = PageBytes(shape, dtype);
  return rows;
}

int64_t TokenBytes(const LocalShape& shape, DType cache_dtype) {
  const DType dtype = LocalDType(cache_dtype);
  return 2 * shape.heads_kv * (shape.d_head * DTypeSize(dtype) + ScaleBytes(dtype));
}

int64_t TokenBytes(const GlobalShape& shape, DType dtype) {
  return shape.d_latent * DTypeSize(dtype) + ScaleBytes(dtype) + RopeBytes(shape, dtype);
}

bool StoreRow(const PageRows& rows, int64_t slot, const float* values, int64_t width,
              uint8_t* page) {
  uint8_t* to = page + rows.offset + slot * rows.stride;
  if (!HasRowScales(rows.dtype)) {
    return FromFloat(rows.dtype, values, width, to);
  }
  float scale = 0;
  const bool finite = rows.dtype == DType::kInt8
                          ? Quantize(values, width, reinterpret_cast<int8_t*>(to), &scale)
                          : QuantizeE4M3(values, width, to, &scale);
  std::memcpy(page + rows.scales + slot * ScaleBytes(rows.dtype), &scale, sizeof(scale));
  return finite;
}

void ClearSlots(const LocalShape& shape, DType dtype, int64_t begin, uint8_t* page) {
  for (int64_t head = 0; head < shape.heads_kv; ++head) {
    ClearRows(KeyRows(shape, dtype, head), shape.d_head, begin, page);
    ClearRows(ValueRows(shape, dtype, head), shape.d_head, begin, page);
  }
}

void ClearSlots(const GlobalShape& shape, DType dtype, int64_t begin, uint8_t* page) {
  ClearRows(LatentRows(shape, dtype), shape.d_latent, begin, page);
  ClearRows(RopeRows(shape, dtype), shape.heads_kv * shape.d_rope, begin, page);
}

float ScaleOf(const PageRows& rows, int64_t slot, const uint8_t* page) {
  float scale = 1;
  if (HasRowScales(rows.dtype)) {
    std::memcpy(&scale, page + rows.scales + slot * ScaleBytes(rows.dtype), sizeof(scale));
  }
  return scale;
}

}  // namespace attnd::kernels
