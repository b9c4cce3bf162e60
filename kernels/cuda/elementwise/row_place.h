// Where rows of one kind lie in a page, as device code takes it from cache_layout.h.
#pragma once

#include <cstdint>

#include "kernels/dtype.h"

namespace attnd::kernels::cuda {

// Row of KV head h in slot s: at offset + h * head_step + s * stride, in bytes; its float32 scale,
// where the dtype has one, at scales + 4 s.
struct RowPlace {
  DType dtype = DType::kF32;
  int64_t offset = 0;
  int64_t head_step = 0;
  int64_t stride = 0;
  int64_t scales = 0;

  bool operator==(const RowPlace&) const = default;
};

}  // namespace attnd::kernels::cuda
