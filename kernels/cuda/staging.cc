#include "kernels/cuda/staging.h"

#include <algorithm>
#include <cstring>

#include "kernels/check.h"

namespace attnd::kernels::cuda {

absl::StatusOr<std::unique_ptr<Staging>> Staging::Create(std::shared_ptr<Runtime> runtime) {
  std::unique_ptr<Staging> staging(new Staging(runtime));
  absl::Status status = staging->up_.Allocate(runtime, "uploads", kBytes);
  status.Update(staging->down_.Allocate(runtime, "downloads", kBytes));
  if (!status.ok()) {
    return status;
  }
  return staging;
}

void Staging::Upload(void* device, const void* host, int64_t bytes) {
  const auto* from = static_cast<const uint8_t*>(host);
  auto* to = static_cast<uint8_t*>(device);
  while (bytes > 0) {
    const int64_t n = std::min(bytes, kMaxReserve);
    std::memcpy(Reserve(to, n), from, static_cast<size_t>(n));
    from += n;
    to += n;
    bytes -= n;
  }
}

uint8_t* Staging::Reserve(void* device, int64_t bytes) {
  Check(bytes <= kMaxReserve, "a staged copy is within its limit");
  if (used_ + bytes > up_.bytes()) {
    Flush();
    status_.Update(runtime_->Synchronize());
    used_ = begin_ = 0;
  }
  if (to_ == nullptr || to_ + (used_ - begin_) != device) {
    Flush();
    to_ = static_cast<uint8_t*>(device);
  }
  uint8_t* reserved = up_.data() + used_;
  used_ += bytes;
  return reserved;
}

void Staging::Flush() {
  if (used_ > begin_) {
    runtime_->CopyToDevice(to_, up_.data() + begin_, used_ - begin_);
  }
  begin_ = used_;
  to_ = nullptr;
}

void Staging::Download(void* host, const void* device, int64_t bytes) {
  auto* to = static_cast<uint8_t*>(host);
  const auto* from = static_cast<const uint8_t*>(device);
  while (bytes > 0) {
    const int64_t n = std::min(bytes, kBytes);
    landings_.push_back({to, from, n});
    to += n;
    from += n;
    bytes -= n;
  }
}

// Landings from *next on, as many as there is room for; neighbours on the device with one copy.
absl::Status Staging::FetchSome(size_t* next) {
  const size_t first = *next;
  int64_t used = 0;
  while (*next < landings_.size() && used + landings_[*next].bytes <= down_.bytes()) {
    const uint8_t* device = landings_[*next].device;
    const int64_t begin = used;
    for (; *next < landings_.size() && landings_[*next].device == device + (used - begin) &&
           used + landings_[*next].bytes <= down_.bytes();
         ++*next) {
      used += landings_[*next].bytes;
    }
    runtime_->CopyToHost(down_.data() + begin, device, used - begin);
  }
  if (absl::Status status = runtime_->Synchronize(); !status.ok()) {
    return status;
  }
  const uint8_t* from = down_.data();
  for (size_t i = first; i < *next; from += landings_[i].bytes, ++i) {
    std::memcpy(landings_[i].host, from, static_cast<size_t>(landings_[i].bytes));
  }
  return absl::OkStatus();
}

absl::Status Staging::Finish() {
  Flush();
  absl::Status status = std::exchange(status_, absl::OkStatus());
  size_t next = 0;
  do {
    status.Update(FetchSome(&next));
  } while (status.ok() && next < landings_.size());
  landings_.clear();
  used_ = begin_ = 0;
  return status;
}

}  // namespace attnd::kernels::cuda
