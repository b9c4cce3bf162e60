#include "kernels/cuda/weights.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/check.h"

namespace attnd::kernels::cuda {
namespace {

constexpr int64_t kMaxChunk = int64_t{512} << 20;
constexpr int64_t kAlignment = 256;

// [groups][in][out] to [groups][out][in].
std::vector<uint8_t> Turned(const WeightView& w) {
  const auto size = static_cast<size_t>(DTypeSize(w.dtype));
  const auto* from = static_cast<const uint8_t*>(w.data);
  std::vector<uint8_t> turned(static_cast<size_t>(w.groups * w.out * w.in) * size);
  uint8_t* to = turned.data();
  for (int64_t g = 0; g < w.groups; ++g) {
    for (int64_t n = 0; n < w.out; ++n) {
      for (int64_t k = 0; k < w.in; ++k, to += size) {
        std::memcpy(to, from + static_cast<size_t>((g * w.in + k) * w.out + n) * size, size);
      }
    }
  }
  return turned;
}

}  // namespace

absl::StatusOr<uint8_t*> WeightStore::Take(int64_t bytes) {
  const int64_t aligned = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (chunk_ == nullptr || used_ + aligned > chunk_->bytes()) {
    auto chunk = std::make_shared<OwnedDeviceMemory>();
    if (absl::Status status = chunk->Allocate(runtime_, "weights", std::max(aligned, next_chunk_));
        !status.ok()) {
      return status;
    }
    next_chunk_ = std::min(2 * next_chunk_, kMaxChunk);
    chunk_ = std::move(chunk);
    used_ = 0;
  }
  uint8_t* taken = chunk_->data() + used_;
  used_ += aligned;
  return taken;
}

absl::StatusOr<std::unique_ptr<PackedWeight>> WeightStore::Pack(const WeightView& weight) {
  Check(!HasRowScales(weight.dtype), "int8 and fp8_e4m3 are for caches alone");
  auto packed = std::make_unique<CudaWeight>();
  packed->dtype = weight.dtype;
  packed->groups = weight.groups;
  packed->out = weight.out;
  packed->in = weight.in;
  absl::StatusOr<uint8_t*> data = Take(packed->bytes());
  if (!data.ok()) {
    return data.status();
  }
  packed->data = *data;
  packed->chunk = chunk_;
  if (weight.transposed) {
    staging_->Upload(*data, Turned(weight).data(), packed->bytes());
  } else {
    staging_->Upload(*data, weight.data, packed->bytes());
  }
  max_in_ = std::max(max_in_, weight.groups * weight.in);
  max_out_ = std::max(max_out_, weight.groups * weight.out);
  return packed;
}

}  // namespace attnd::kernels::cuda
