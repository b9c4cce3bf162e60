// The emulated device's stream: launches run at once, on the calling thread, unless they are being
// recorded.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cuda_emulation/machine.h"

namespace attnd::kernels::cuda {

using emulation::Order;

class Stream {
 public:
  // 80, 89, 90 or 100: how much shared memory a block may have. 90 at first.
  void set_architecture(int architecture) { machine_.SetArchitecture(architecture); }
  // In which order threads and blocks run; at random from seed 1 at first.
  void set_order(Order order) { machine_.SetOrder(order, 1); }
  void set_order(uint64_t seed) { machine_.SetOrder(Order::kRandom, seed); }

  // A fault ends the process with a line on stderr, unless they are collected: then the first one
  // is kept, and nothing more runs until it is cleared.
  void CollectFaults() { machine_.set_collects_faults(true); }
  const std::string& fault() const { return machine_.fault(); }  // empty: none
  void ClearFault() { machine_.clear_fault(); }

  const emulation::Counts& counts() { return machine_.counts(); }
  void ClearCounts() { machine_.counts() = {}; }

  // Runs `work` (a launch, a copy) or, between StartRecording() and StopRecording(), keeps it.
  void Run(std::function<void()> work) {
    if (recording_) {
      recorded_.push_back(std::move(work));
    } else if (fault().empty()) {
      work();
    }
  }
  void StartRecording() { recording_ = true; }
  std::vector<std::function<void()>> StopRecording() {
    recording_ = false;
    return std::exchange(recorded_, {});
  }

  emulation::Machine& machine() { return machine_; }

 private:
  emulation::Machine machine_;
  bool recording_ = false;
  std::vector<std::function<void()>> recorded_;
};

template <typename Params>
void Launch(Stream& stream, void (*kernel)(Params), Index3 grid, int threads, int shared_bytes,
            const Params& params) {
  static_assert(std::is_trivially_copyable_v<Params> && sizeof(Params) <= 4096);
  stream.Run([&stream, kernel, grid, threads, shared_bytes, params] {
    stream.machine().RunGrid({grid, threads, shared_bytes}, [&] { kernel(params); });
  });
}

}  // namespace attnd::kernels::cuda
