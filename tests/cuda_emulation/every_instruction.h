// The launcher of a kernel that uses all of device.cuh.
#pragma once

#include <cstdint>

namespace attnd::kernels::cuda {

class Stream;

struct EveryInstructionParams {
  const uint16_t* a = nullptr;       // [16][16], bf16 or f16
  const uint16_t* b = nullptr;       // [16][16], k by n
  int rows = 16;                     // of b; further ones count as zeros
  float* product = nullptr;          // [16][16]
  const float* exponents = nullptr;  // [32]
  float* sums = nullptr;    // [32]: one over the sum of the powers; one more when one in four is 0
  int* arrivals = nullptr;  // blocks that are done
  float* last_seen = nullptr;  // [blocks]: sums[1] by the last one, exponents[0] by the others
};

void LaunchEveryInstruction(Stream& stream, int blocks, bool bf16,
                            const EveryInstructionParams& params);

}  // namespace attnd::kernels::cuda
