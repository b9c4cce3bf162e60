// Conversions between stored element types and float32: exact upwards, round to nearest even
// downwards (NaN stays NaN, overflow of f16 becomes infinity). Any alignment, any length.
#pragma once

#include <cstdint>

#include "kernels/dtype.h"

namespace attnd::kernels {

// Reads n elements of `dtype` at `src` (unaligned allowed) into `dst`. False when any value is a
// NaN or an infinity; all values are converted all the same.
bool ToFloat(DType dtype, const void* src, int64_t n, float* dst);

// Writes n floats as `dtype` at `dst` (unaligned allowed). False when any written value is not
// finite (it was not, or it overflowed).
bool FromFloat(DType dtype, const float* src, int64_t n, void* dst);

}  // namespace attnd::kernels
