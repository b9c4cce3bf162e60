// A fiber: a stack of its own and where it stands. The sanitizers are told of every switch.
#pragma once

#include <cstddef>

namespace attnd::kernels::cuda::emulation {

// Kernels' accumulators live on it; at -O0 and with AddressSanitizer's red zones a tile of
// attention took 20 KiB.
inline constexpr size_t kStackBytes = 256 << 10;

class Fiber {
 public:
  Fiber();  // the one that calls: no stack of its own
  // The stack begins `colour` bytes below its top: the stacks of a block, used to the same depth,
  // would otherwise all lie in the same sets of the first cache.
  Fiber(size_t stack_bytes, size_t colour);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Makes the fiber begin with entry(argument) when it is next switched to; where it stood before
  // is forgotten. `entry` never returns: it ends with SwitchTo(..., true).
  void Prepare(void (*entry)(void*), void* argument);

  // From this fiber, which runs, to `other`. `ends`: this one will not be switched to again before
  // Prepare().
  void SwitchTo(Fiber& other, bool ends = false);

 private:
  static Fiber& Arrive(void* came_from, void* context);
  void FinishSwitch(Fiber& from);

  void* context_ = nullptr;  // where it stands while it does not run
  Fiber* target_ = nullptr;  // to whom it switched last
  char* mapping_ = nullptr;  // a guard page, then the stack
  const void* bottom_ = nullptr;
  size_t bytes_ = 0;
  size_t colour_ = 0;
  void* fake_stack_ = nullptr;     // AddressSanitizer's
  void* thread_fiber_ = nullptr;   // ThreadSanitizer's
  [[maybe_unused]] int runs_ = 0;  // that it has seen
  bool ended_ = true;
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
};

}  // namespace attnd::kernels::cuda::emulation
