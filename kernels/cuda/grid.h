// How many blocks a kernel gets that loops over its items.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/runtime.h"

namespace attnd::kernels::cuda {

// Blocks of 64 to 128 threads: 16 of them fill a multiprocessor's 2048 threads.
inline constexpr int64_t kBlocksPerMultiprocessor = 16;

inline int GridFor(const Runtime& runtime, int64_t items) {
  const int64_t most = runtime.properties().multiprocessors * kBlocksPerMultiprocessor;
  return static_cast<int>(std::clamp<int64_t>(items, 1, most));
}

}  // namespace attnd::kernels::cuda
