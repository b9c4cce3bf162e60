// Weights in device memory, as matrix products read them: [groups][out][in], of the dtype they came
// in. Transposed ones are turned on the host, once.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/staging.h"

namespace attnd::kernels::cuda {

class CudaWeight : public PackedWeight {
 public:
  int64_t bytes() const override { return groups * out * in * DTypeSize(dtype); }

  const uint8_t* data = nullptr;
  DType dtype = DType::kF32;
  int64_t groups = 0;
  int64_t out = 0;
  int64_t in = 0;
  std::shared_ptr<OwnedDeviceMemory> chunk;  // that holds it among others
};

// Takes device memory in chunks, each twice the one before, from 16 MiB to 512 MiB: sizes are not
// known ahead, an allocation takes a tenth of a millisecond, and at most half of a small model's or
// 512 MiB of a large one's is left over.
class WeightStore {
 public:
  WeightStore(std::shared_ptr<Runtime> runtime, Staging* staging)
      : runtime_(std::move(runtime)), staging_(staging) {}

  absl::StatusOr<std::unique_ptr<PackedWeight>> Pack(const WeightView& weight);

  // Of the largest weight seen, all groups together: what a projection's scratch must hold.
  int64_t max_in() const { return max_in_; }
  int64_t max_out() const { return max_out_; }

 private:
  absl::StatusOr<uint8_t*> Take(int64_t bytes);

  std::shared_ptr<Runtime> runtime_;
  Staging* staging_;
  std::shared_ptr<OwnedDeviceMemory> chunk_;
  int64_t used_ = 0;  // of chunk_
  int64_t next_chunk_ = int64_t{16} << 20;
  int64_t max_in_ = 0;
  int64_t max_out_ = 0;
};

}  // namespace attnd::kernels::cuda
