// kernels::cuda::Runtime on the emulated device: device memory is the process's, with guard bytes
// around every allocation and NaN in it; what is asked for happens at Synchronize(), so that what
// forgets to wait, or changes page-locked memory too early, shows.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/cuda/runtime.h"

namespace attnd::kernels::cuda {

struct EmulatedOptions {
  int architecture = 90;
  int multiprocessors = 2;  // blocks run one after the other: more are only slower
  int64_t total_bytes = int64_t{8} << 30;
  // As cudaMalloc() does: allocations lie one behind the other at multiples of 512 bytes. There are
  // then no guard bytes around them.
  bool neighbours = false;
};

// What the tests ask of it.
struct EmulatedCounts {
  int64_t captures = 0;
  int64_t graph_runs = 0;
};

class EmulatedRuntime : public Runtime {
 public:
  virtual const EmulatedCounts& counts() const = 0;
  // The next Synchronize() fails with this.
  virtual void FailNext(const std::string& error) = 0;
};

std::unique_ptr<EmulatedRuntime> MakeEmulatedRuntime(const EmulatedOptions& options = {});

}  // namespace attnd::kernels::cuda
