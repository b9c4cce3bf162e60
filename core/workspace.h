// Buffers of a layer's intermediate results: counted first, bound second, so that running a
// batch allocates nothing. A buffer's name is in the error when there is no room for it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend.h"

namespace attnd {

class Workspace {
 public:
  // Counts a buffer of `count` elements of T; *pointer is set by Bind().
  template <typename T>
  void Add(const char* name, int64_t count, T** pointer) {
    buffers_.push_back({name, count * static_cast<int64_t>(sizeof(T)),
                        [](void* target, uint8_t* data) {
                          *static_cast<T**>(target) = reinterpret_cast<T*>(data);
                        },
                        pointer});
  }

  // Takes the memory and sets all pointers.
  absl::Status Bind(kernels::Backend* backend);
  int64_t bytes() const { return memory_ == nullptr ? 0 : memory_->bytes(); }

 private:
  struct Buffer {
    const char* name;
    int64_t bytes;
    void (*set)(void* target, uint8_t* data);
    void* target;
  };
  std::vector<Buffer> buffers_;
  std::unique_ptr<kernels::DeviceMemory> memory_;
};

}  // namespace attnd
