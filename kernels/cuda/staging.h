// The way between the host's memory and the device's: copies go through page-locked memory, so that
// a caller may change its own at once, and neighbours are copied together.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/runtime.h"

namespace attnd::kernels::cuda {

class Staging {
 public:
  static absl::StatusOr<std::unique_ptr<Staging>> Create(std::shared_ptr<Runtime> runtime);

  // Copies from `host` before it returns; the device has it once Flush() was called, for what is
  // launched behind that.
  void Upload(void* device, const void* host, int64_t bytes);
  // Page-locked memory whose `bytes`, to be filled before the next call, go to `device`. At most
  // kMaxReserve.
  uint8_t* Reserve(void* device, int64_t bytes);
  void Flush();

  // `host` is filled by Finish(), from what `device` holds then.
  void Download(void* host, const void* device, int64_t bytes);
  // Waits for all work, and fills what downloads promised.
  absl::Status Finish();

  // 32 MiB hold the hidden rows of a batch of 1024 at d_model = 8192; larger ones wait for the
  // device once more. Downloads likewise.
  static constexpr int64_t kBytes = int64_t{32} << 20;
  static constexpr int64_t kMaxReserve = int64_t{16} << 20;

 private:
  struct Landing {
    uint8_t* host;
    const uint8_t* device;
    int64_t bytes;
  };

  explicit Staging(std::shared_ptr<Runtime> runtime) : runtime_(std::move(runtime)) {}
  absl::Status FetchSome(size_t* next);

  std::shared_ptr<Runtime> runtime_;
  PinnedMemory up_, down_;
  int64_t used_ = 0;  // of up_
  // A copy that has not been issued: up_[begin, used_) to `to`.
  uint8_t* to_ = nullptr;
  int64_t begin_ = 0;
  std::vector<Landing> landings_;
  absl::Status status_;  // of waits between two Finish()
};

}  // namespace attnd::kernels::cuda
