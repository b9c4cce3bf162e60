// The stream of a real card, for host code: what Launch() of device_ptx.cuh and the runtime share.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace attnd::kernels::cuda {

class Stream {
 public:
  explicit Stream(cudaStream_t handle) : handle_(handle) {}

  cudaStream_t handle() const { return handle_; }

  // Launches are asynchronous: what is known at once is kept, and the first error stays.
  void Keep(cudaError_t error) {
    if (error_ == cudaSuccess) {
      error_ = error;
    }
  }
  cudaError_t TakeError() { return std::exchange(error_, cudaSuccess); }

  // Beyond 48 KiB a kernel has to be allowed its dynamic shared memory. The driver call takes
  // microseconds: it is made when a kernel first asks for so much.
  void AllowShared(const void* kernel, int bytes) {
    constexpr int kAlwaysAllowed = 48 << 10;
    if (bytes <= kAlwaysAllowed) {
      return;
    }
    const auto known = std::find_if(allowed_.begin(), allowed_.end(),
                                    [&](const auto& entry) { return entry.first == kernel; });
    if (known != allowed_.end() && known->second >= bytes) {
      return;
    }
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    Keep(error);
    if (error != cudaSuccess) {
      return;
    }
    if (known != allowed_.end()) {
      known->second = bytes;
    } else {
      allowed_.emplace_back(kernel, bytes);
    }
  }

 private:
  cudaStream_t handle_;
  cudaError_t error_ = cudaSuccess;
  std::vector<std::pair<const void*, int>> allowed_;  // kernels and their limits; tens
};

}  // namespace attnd::kernels::cuda
