// Memory of the CPU backend: mapped device memory, and scratch buffers aligned to cache lines.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace attnd::kernels {

// a * b for non-negative sizes; -1 when it does not fit (or an operand is already -1), which
// every allocation here refuses.
constexpr int64_t CheckedProduct(int64_t a, int64_t b) {
  int64_t product = -1;
  if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product)) {
    return -1;
  }
  return product;
}

// Anonymous pages: zero until touched, and no swap reserved. RESOURCE_EXHAUSTED names
// `purpose` and the bytes.
absl::StatusOr<std::unique_ptr<DeviceMemory>> MapMemory(const char* purpose, int64_t bytes);

// An owned array, aligned to 64 bytes, not initialised.
template <typename T>
class AlignedArray {
 public:
  T* get() const { return data_.get(); }
  T& operator[](int64_t index) const { return data_.get()[index]; }
  int64_t size() const { return size_; }

  // Replaces the array; RESOURCE_EXHAUSTED names `purpose` and the bytes.
  absl::Status Allocate(const char* purpose, int64_t count);

 private:
  struct Free {
    void operator()(T* data) const { std::free(data); }
  };
  std::unique_ptr<T, Free> data_;
  int64_t size_ = 0;
};

// What AlignedArray calls: null and a status when the memory is not there.
absl::Status AllocateAligned(const char* purpose, int64_t bytes, void** data);

template <typename T>
absl::Status AlignedArray<T>::Allocate(const char* purpose, int64_t count) {
  void* data = nullptr;
  absl::Status status =
      AllocateAligned(purpose, CheckedProduct(count, static_cast<int64_t>(sizeof(T))), &data);
  if (status.ok()) {
    data_.reset(static_cast<T*>(data));
    size_ = count;
  }
  return status;
}

}  // namespace attnd::kernels
