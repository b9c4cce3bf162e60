// The shared memory of the emulated multiprocessor.
#include <cstring>

#include "cuda_emulation/machine.h"

namespace attnd::kernels::cuda::emulation {

char* Machine::SharedAddress(Site site, int64_t offset, int64_t bytes) {
  if (offset < 0 || offset + bytes > shape_.shared_bytes) {
    Fault("bytes " + std::to_string(offset) + " to " + std::to_string(offset + bytes) + " of " +
          std::to_string(shape_.shared_bytes) + " of shared memory at " + ToString(site));
  }
  return shared_.get() + offset;
}

Access Machine::MakeAccess(const char* name, Site site) const {
  return {.thread = running_,
          .block_epoch = block_epoch_,
          .warp_epoch = warps_[running_ / kWarp].epoch,
          .run = run_epoch_,
          .name = name,
          .site = site};
}

const char* Machine::ReadShared(const char* name, Site site, int64_t offset, int64_t bytes) {
  const char* address = SharedAddress(site, offset, bytes);
  FaultIf(shadow_.Read(MakeAccess(name, site), offset, bytes));
  return address;
}

const char* Machine::ReadSharedByWarp(const char* name, Site site, int64_t offset, int64_t bytes) {
  const char* address = SharedAddress(site, offset, bytes);
  Access access = MakeAccess(name, site);
  access.whole_warp = true;
  FaultIf(shadow_.Read(access, offset, bytes));
  return address;
}

char* Machine::WriteShared(const char* name, Site site, int64_t offset, int64_t bytes) {
  char* address = SharedAddress(site, offset, bytes);
  FaultIf(shadow_.Write(MakeAccess(name, site), offset, bytes));
  return address;
}

void Machine::BeginCopy(const Copy& copy) {
  char* to = SharedAddress(copy.site, copy.to, kCopyBytes);
  FaultIf(shadow_.BeginCopy(MakeAccess("CopyAsync16", copy.site), copy.to, kCopyBytes));
  std::memset(to, 0xff, kCopyBytes);
  copies().pending.push_back(copy);
  ++counts_.copies;
}

void Machine::EndCopy(const Copy& copy) {
  shadow_.EndCopy(MakeAccess("CopyAsync16", copy.site), copy.to, kCopyBytes);
  char* to = shared_.get() + copy.to;
  if (copy.from == nullptr) {
    std::memset(to, 0, kCopyBytes);
  } else {
    std::memcpy(to, copy.from, kCopyBytes);
  }
}

}  // namespace attnd::kernels::cuda::emulation
