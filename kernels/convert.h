// Conversions between stored element types and float32: exact upwards, round to nearest even
// downwards (NaN stays NaN, overflow of f16 becomes infinity). Any alignment, any length. int8
// and fp8_e4m3 have a scale to a row and their own functions.
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

// Writes n floats as int8 with one scale: max|src| / 127, at least 2^-126, or 0 when all are zero;
// an element is q * scale. Off by at most (1/254 + 2^-23) max|src|, or 2^-127 if that is more: half
// a step, and the roundings of scale, quotient and product. False when a value is a NaN or an
// infinity, or q * scale would be one.
bool Quantize(const float* src, int64_t n, int8_t* dst, float* scale);

// Likewise as e4m3 (4 bits of exponent, 3 of mantissa, no infinity; the largest is 448), the scale
// max|src| / 448. An element is off by at most 2^-4 of itself or 2^-10 of the scale, and a little
// more for the roundings of scale and quotient.
bool QuantizeE4M3(const float* src, int64_t n, uint8_t* dst, float* scale);

// Round to nearest even; what is larger than 448 becomes 448, a NaN stays one.
uint8_t NarrowE4M3(float value);
float WidenE4M3(uint8_t stored);

}  // namespace attnd::kernels
