// The CUDA backend: kernels::Backend on a card, or on the emulated device of the tests.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/runtime.h"

namespace attnd::kernels::cuda {

struct CudaOptions {
  // A row's bits depend on that row and its history alone. False lets cuBLAS and the splits of
  // attention follow the batch: a few percent faster on odd sizes.
  bool deterministic = true;
  bool graphs = true;          // decode steps that repeat run as CUDA graphs
  bool tensor_cores = true;    // false: the plain attention kernel alone, for comparisons
  int64_t expand_keys = 4096;  // keys that are expanded at a time; a multiple of 128
  int64_t partial_bytes = int64_t{256} << 20;  // for the splits of attention
};

// Takes page-locked memory for copies; the error says how much was free.
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(std::unique_ptr<Runtime> runtime,
                                                         const CudaOptions& options);

}  // namespace attnd::kernels::cuda
