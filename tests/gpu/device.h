// The device that the checks run on: a card (device_cuda.cc), or the emulated one
// (device_emulated.cc) where the checks themselves are tested. No header of the host's libraries.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/dtype.h"

namespace attnd::kernels::cuda {
class Stream;
}

namespace attnd::gpu {

using kernels::cuda::Stream;

// Exit code of a program that found no card to run on.
inline constexpr int kNoDevice = 3;

struct DeviceInfo {
  std::string name;
  int architecture = 0;  // 80, 89, 90, 100
  int multiprocessors = 0;
  int64_t block_shared_bytes = 0;
  int64_t multiprocessor_shared_bytes = 0;
  bool emulated = false;
};

// y = x Wᵀ for `batch` independent products, row-major: x [rows][k], w [n][k], y [rows][n] float32.
struct Product {
  DType dtype = DType::kF32;  // of x and w
  const void* x = nullptr;
  const void* w = nullptr;
  float* y = nullptr;
  int64_t rows = 0, n = 0, k = 0;
  int64_t batch = 1;
  int64_t x_batch = 0, w_batch = 0, y_batch = 0;  // elements
};

// Errors end the process with a line on stderr: there is nothing to go on with.
class Device {
 public:
  Device();
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const DeviceInfo& info() const;
  Stream& stream();

  // Filled with 0xff, which is a NaN in every dtype.
  void* Allocate(int64_t bytes);
  void Free(void* memory);
  void ToDevice(void* device, const void* host, int64_t bytes);
  void ToHost(void* host, const void* device, int64_t bytes);
  void Multiply(const Product& product);
  // `what` was launched last: it names an error.
  void Synchronize(const std::string& what);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// n values in the device's memory.
template <typename T>
class Buffer {
 public:
  Buffer(Device& device, int64_t n)
      : device_(&device), n_(n), data_(static_cast<T*>(device.Allocate(n * kBytes))) {}
  Buffer(Device& device, const std::vector<T>& values)
      : Buffer(device, static_cast<int64_t>(values.size())) {
    Set(values);
  }
  Buffer(Buffer&& other) noexcept
      : device_(other.device_), n_(other.n_), data_(std::exchange(other.data_, nullptr)) {}
  Buffer& operator=(Buffer&&) = delete;
  ~Buffer() {
    if (data_ != nullptr) {
      device_->Free(data_);
    }
  }

  T* data() const { return data_; }
  int64_t size() const { return n_; }
  void Set(const std::vector<T>& values) {
    device_->ToDevice(data_, values.data(), static_cast<int64_t>(values.size()) * kBytes);
  }
  std::vector<T> Get() const {
    std::vector<T> values(static_cast<size_t>(n_));
    device_->ToHost(values.data(), data_, n_ * kBytes);
    return values;
  }

 private:
  static constexpr int64_t kBytes = sizeof(T);
  Device* device_;
  int64_t n_;
  T* data_;
};

}  // namespace attnd::gpu
