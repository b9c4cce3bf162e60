#include "cuda_emulation/copies.h"

#include <cstdint>
#include <string>

#include "cuda_emulation/machine.h"

namespace attnd::kernels::cuda::emulation {
namespace {

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
  machine.BeginCopy({to, valid ? global : nullptr, site});
}

void CommitCopies() {
  Copies& copies = Machine::Current().copies();
  copies.groups.push_back(copies.done + std::ssize(copies.pending));
}

void WaitForCopies(int newest) {
  Machine& machine = Machine::Current();
  Copies& copies = machine.copies();
  while (std::ssize(copies.groups) > newest) {
    for (; copies.done < copies.groups.front(); ++copies.done) {
      machine.EndCopy(copies.pending.front());
      copies.pending.pop_front();
    }
    copies.groups.pop_front();
  }
}

}  // namespace attnd::kernels::cuda::emulation
