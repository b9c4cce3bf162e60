// Elements of any dtype in device memory, as float32. The dtype is the same for a whole launch: the
// branch costs nothing beside the access.
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/elementwise/row_place.h"

namespace attnd::kernels::cuda {

__device__ inline float LoadElement(DType dtype, const void* data, int64_t i) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<const float*>(data)[i];
    case DType::kBF16:
      return ToFloat(static_cast<const BF16*>(data)[i]);
    case DType::kF16:
      return ToFloat(static_cast<const F16*>(data)[i]);
    case DType::kFp8E4M3:
      return ToFloat(static_cast<const E4M3*>(data)[i]);
    case DType::kInt8:
      break;
  }
  return 0;
}

// False when the value, as stored, is not finite. For dtypes without scales.
__device__ inline bool StoreElement(DType dtype, void* data, int64_t i, float value) {
  float stored = value;
  if (dtype == DType::kF32) {
    static_cast<float*>(data)[i] = value;
  } else if (dtype == DType::kBF16) {
    const BF16 narrow = ToBF16(value);
    static_cast<BF16*>(data)[i] = narrow;
    stored = ToFloat(narrow);
  } else {
    const F16 narrow = ToF16(value);
    static_cast<F16*>(data)[i] = narrow;
    stored = ToFloat(narrow);
  }
  return (FloatToBits(stored) & 0x7fffffffu) < 0x7f800000u;
}

__device__ inline int64_t ElementBytes(DType dtype) {
  return dtype == DType::kF32 ? 4 : dtype == DType::kFp8E4M3 || dtype == DType::kInt8 ? 1 : 2;
}

__device__ inline float LoadScale(const RowPlace& place, const uint8_t* page, int32_t slot) {
  return place.dtype == DType::kFp8E4M3 ? reinterpret_cast<const float*>(page + place.scales)[slot]
                                        : 1.0f;
}

}  // namespace attnd::kernels::cuda
