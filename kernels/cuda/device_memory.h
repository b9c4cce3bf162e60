// Memory of a runtime that is freed with its owner.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/runtime.h"

namespace attnd::kernels::cuda {

// Of the device, or page-locked memory of the host.
template <bool kPinned>
class RuntimeMemory {
 public:
  RuntimeMemory() = default;
  RuntimeMemory(RuntimeMemory&& other) noexcept { *this = std::move(other); }
  RuntimeMemory& operator=(RuntimeMemory&& other) noexcept {
    std::swap(runtime_, other.runtime_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~RuntimeMemory() { Free(); }

  absl::Status Allocate(std::shared_ptr<Runtime> runtime, const char* purpose, int64_t bytes) {
    Free();
    // A byte more than is used: cudaMalloc() puts allocations of a multiple of 512 bytes side by
    // side, staging.h copies neighbours together, and CUDA refuses a copy that lies in two.
    absl::StatusOr<void*> data = kPinned ? runtime->AllocatePinned(purpose, bytes)
                                         : runtime->AllocateDevice(purpose, bytes + 1);
    if (!data.ok()) {
      return data.status();
    }
    runtime_ = std::move(runtime);
    data_ = static_cast<uint8_t*>(*data);
    bytes_ = bytes;
    return absl::OkStatus();
  }

  uint8_t* data() const { return data_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  int64_t bytes() const { return bytes_; }

 private:
  void Free() {
    if (data_ != nullptr) {
      kPinned ? runtime_->FreePinned(data_) : runtime_->FreeDevice(data_);
      data_ = nullptr;
      bytes_ = 0;
    }
  }

  std::shared_ptr<Runtime> runtime_;
  uint8_t* data_ = nullptr;
  int64_t bytes_ = 0;
};

using OwnedDeviceMemory = RuntimeMemory<false>;
using PinnedMemory = RuntimeMemory<true>;

}  // namespace attnd::kernels::cuda
