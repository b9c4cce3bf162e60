// What the backend needs of CUDA's runtime and of cuBLAS, so that the same backend runs on a card
// (cuda_runtime.cc) and on the emulated device of the tests (tests/cuda_emulation/).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/dtype.h"

namespace attnd::kernels::cuda {

class Stream;  // what Launch() of device.cuh takes; each side defines its own

// Recorded work that can be run again: the same launches with the same parameters; what the
// memory behind their pointers holds may have changed.
class Graph {
 public:
  virtual ~Graph() = default;
};

// y = x Wᵀ for `batch` independent products, row-major: x [rows][k], w [n][k], y [rows][n] float32.
// Strides in elements. The bits of a row do not depend on the other rows' values, and of rows from
// `used_rows` on the results are not read.
struct GemmParams {
  DType dtype = DType::kF32;  // of x and w
  const void* x = nullptr;
  const void* w = nullptr;
  float* y = nullptr;
  int64_t rows = 0, n = 0, k = 0;
  int64_t used_rows = 0;
  int64_t x_row = 0, w_row = 0, y_row = 0;
  int64_t batch = 1;
  int64_t x_batch = 0, w_batch = 0, y_batch = 0;
};

struct DeviceProperties {
  std::string name;      // "cuda:0:NVIDIA_H200"
  int architecture = 0;  // 80, 89, 90, 100
  int multiprocessors = 0;
  int64_t shared_bytes = 0;  // that a block may have
  int64_t multiprocessor_shared_bytes = 0;
  int64_t total_bytes = 0;  // of memory
};

// Calls come from one thread. Copies and launches run in order on one stream; their errors, and
// those of kernels, come from Synchronize().
class Runtime {
 public:
  virtual ~Runtime() = default;

  virtual const DeviceProperties& properties() const = 0;
  virtual Stream& stream() = 0;

  // ResourceExhausted says how much was needed and how much is free.
  virtual absl::StatusOr<void*> AllocateDevice(const char* purpose, int64_t bytes) = 0;
  virtual void FreeDevice(void* memory) = 0;
  // Page-locked host memory that copies read and write without a stop.
  virtual absl::StatusOr<void*> AllocatePinned(const char* purpose, int64_t bytes) = 0;
  virtual void FreePinned(void* memory) = 0;
  virtual int64_t FreeBytes() = 0;

  virtual void CopyToDevice(void* device, const void* host, int64_t bytes) = 0;
  virtual void CopyToHost(void* host, const void* device, int64_t bytes) = 0;
  virtual void CopyOnDevice(void* to, const void* from, int64_t bytes) = 0;
  virtual void Zero(void* device, int64_t bytes) = 0;
  virtual absl::Status Synchronize() = 0;

  virtual void Gemm(const GemmParams& params) = 0;

  // Records what `work` launches instead of running it. Null when it cannot be recorded.
  virtual std::unique_ptr<Graph> Capture(const std::function<void()>& work) = 0;
  virtual void Run(const Graph& graph) = 0;
};

// Device `index`. NotFound or FailedPrecondition say in one line why not: no driver, no such card,
// a card older than sm_80.
absl::StatusOr<std::unique_ptr<Runtime>> OpenCudaRuntime(int index);

}  // namespace attnd::kernels::cuda
