// Kernels that show what single instructions of device.cuh do.
#pragma once

#include <cstdint>

namespace attnd::kernels::cuda {

class Stream;

struct MmaProbe {
  const uint32_t* a = nullptr;  // [32][4] registers
  const uint32_t* b = nullptr;  // [32][2]
  float* d = nullptr;           // [32][4], read and written
};
void LaunchMmaProbe(Stream& stream, bool bf16, const MmaProbe& params);

// 16 rows of 64 bytes are copied to shared memory, `valid_rows` of them as valid; then four 8 x 8
// matrices of 16 bits are loaded from rows 0 to 7.
struct LoadMatrixProbe {
  const uint16_t* rows = nullptr;  // [16][32], aligned to 16 bytes
  int valid_rows = 16;
  bool transposed = false;
  uint32_t* loaded = nullptr;  // [32][4] registers
  uint16_t* copied = nullptr;  // [16][32] as it came to lie in shared memory
};
void LaunchLoadMatrixProbe(Stream& stream, const LoadMatrixProbe& params);

// Conversions and special functions of n values.
struct ArithmeticProbe {
  const float* x = nullptr;  // [n]
  int64_t n = 0;
  uint16_t* bf16 = nullptr;     // [n]
  uint16_t* f16 = nullptr;      // [n]
  uint8_t* e4m3 = nullptr;      // [n]
  uint32_t* packed = nullptr;   // [n]: Pack<BF16>(x, -x)
  float* widened = nullptr;     // [n][4]: UnpackE4M3 of x's bits
  float* exp2 = nullptr;        // [n]
  float* reciprocal = nullptr;  // [n]
};
void LaunchArithmeticProbe(Stream& stream, int blocks, const ArithmeticProbe& params);

}  // namespace attnd::kernels::cuda
