// What kernels/cuda/device.cuh lists, for a plain C++ compiler: a CUDA thread is a fiber of the
// emulated device (machine.h).
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "cuda_emulation/copies.h"
#include "cuda_emulation/machine.h"
#include "cuda_emulation/shared.h"
#include "cuda_emulation/stream.h"
#include "cuda_emulation/warp.h"
#include "kernels/cuda/element.cuh"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

namespace attnd::kernels::cuda {

inline Index3 BlockIndex() { return emulation::Machine::Current().block(); }
inline Index3 GridSize() { return emulation::Machine::Current().grid(); }
inline int ThreadIndex() { return emulation::Machine::Current().thread(); }
inline int LaneIndex() { return ThreadIndex() % emulation::kWarp; }
inline int WarpIndex() { return ThreadIndex() / emulation::kWarp; }

inline void SyncBlock(emulation::Site site = emulation::Here()) {
  emulation::Machine::Current().SyncBlock(site);
}

inline float Exp2(float x) {
  const float y = std::exp2(x);
  return y < 0x1p-126f ? 0.0f : y;  // the hardware's flushes denormals
}
inline float Reciprocal(float x) { return 1.0f / x; }

// Blocks run one after the other, threads change only in collectives: nothing comes between.
inline int AtomicAdd(int* global, int v) {
  const int before = *global;
  *global = before + v;
  return before;
}
inline void Fence() {}
template <typename T>
T LoadGlobal(const T* global) {
  return *global;
}

}  // namespace attnd::kernels::cuda
