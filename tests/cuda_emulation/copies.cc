#include "cuda_emulation/copies.h"

#include <cstring>
#include <string>

#include "cuda_emulation/machine.h"

namespace attnd::kernels::cuda::emulation {
namespace {

constexpr int kCopyBytes = 16;

// Reads the ends of what a copy reads later: AddressSanitizer then names the line that issued it.
void Touch(const void* global) {
  const auto* bytes = static_cast<const volatile char*>(global);
  static_cast<void>(bytes[0]);
  static_cast<void>(bytes[kCopyBytes - 1]);
}

}  // namespace

void IssueCopy(int64_t to, const void* global, bool valid, Site site) {
  Machine& machine = Machine::Current();
  if (to % kCopyBytes != 0) {
    machine.Fault("CopyAsync16 at " + ToString(site) + ": to byte " + std::to_string(to) +
                  " of shared memory; it must be aligned to 16");
  }
  if (reinterpret_cast<uintptr_t>(global) % kCopyBytes != 0) {
    machine.Fault("CopyAsync16 at " + ToString(site) +
                  ": from a global address that is not aligned to 16");
  }
  if (valid) {
    Touch(global);
  }
  std::memset(machine.SharedBytes(to, kCopyBytes, site), 0xff, kCopyBytes);
  machine.copies().pending.push_back({to, valid ? global : nullptr, site});
  ++machine.counts().copies;
}

void CommitCopies() {
  Copies& copies = Machine::Current().copies();
  copies.groups.push_back(copies.done + std::ssize(copies.pending));
}

void WaitForCopies(int newest, Site site) {
  Machine& machine = Machine::Current();
  Copies& copies = machine.copies();
  while (std::ssize(copies.groups) > newest) {
    for (; copies.done < copies.groups.front(); ++copies.done) {
      const Copy& copy = copies.pending.front();
      char* to = machine.SharedBytes(copy.to, kCopyBytes, site);
      if (copy.from == nullptr) {
        std::memset(to, 0, kCopyBytes);
      } else {
        std::memcpy(to, copy.from, kCopyBytes);
      }
      copies.pending.pop_front();
    }
    copies.groups.pop_front();
  }
}

}  // namespace attnd::kernels::cuda::emulation
