#include "core/workspace.h"

#include <algorithm>

namespace attnd {
namespace {

constexpr int64_t kAlignment = 256;

int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

absl::Status Workspace::Bind(kernels::Backend* backend) {
  int64_t total = 0;
  const Buffer* largest = nullptr;
  for (const Buffer& buffer : buffers_) {
    total += Aligned(buffer.bytes);
    if (largest == nullptr || buffer.bytes > largest->bytes) {
      largest = &buffer;
    }
  }
  absl::StatusOr<std::unique_ptr<kernels::DeviceMemory>> memory =
      backend->Allocate("workspace", std::max(total, kAlignment));
  if (!memory.ok()) {
    return absl::ResourceExhaustedError(
        std::string(memory.status().message()) + "; the largest buffer is " +
        (largest == nullptr ? "none" : largest->name) + " (lower --max_batch_rows)");
  }
  memory_ = *std::move(memory);
  int64_t offset = 0;
  for (const Buffer& buffer : buffers_) {
    buffer.set(buffer.target, memory_->data() + offset);
    offset += Aligned(buffer.bytes);
  }
  return absl::OkStatus();
}

}  // namespace attnd
