// Asynchronous copies. They happen at the latest moment that the kernel allows, in the wait that
// asks for them; until then their destination is full of NaN and touching it is a fault.
#pragma once

#include "cuda_emulation/shared.h"
#include "cuda_emulation/site.h"

namespace attnd::kernels::cuda {
namespace emulation {

void IssueCopy(int64_t to, const void* global, bool valid, Site site);
void CommitCopies();
void WaitForCopies(int newest);

}  // namespace emulation

template <typename T>
void CopyAsync16(const Shared<T>& s, int i, const void* global, bool valid,
                 emulation::Site site = emulation::Here()) {
  emulation::IssueCopy(s.Offset(i, 16, site), global, valid, site);
}

inline void CopyAsyncCommit() { emulation::CommitCopies(); }

template <int kNewest>
void CopyAsyncWait() {
  static_assert(kNewest >= 0);
  emulation::WaitForCopies(kNewest);
}

}  // namespace attnd::kernels::cuda
