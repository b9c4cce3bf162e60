#include "cuda_emulation/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <boost/context/detail/fcontext.hpp>

#include "kernels/check.h"

// clang 14 has no macros for its sanitizers.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
#define __SANITIZE_ADDRESS__
#endif
#if __has_feature(thread_sanitizer) && !defined(__SANITIZE_THREAD__)
#define __SANITIZE_THREAD__
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace attnd::kernels::cuda::emulation {

// Boost's fcontext: saves the callee-saved registers and swaps stacks, without a system call.
namespace context = boost::context::detail;

Fiber::Fiber() {
#ifdef __SANITIZE_THREAD__
  thread_fiber_ = __tsan_get_current_fiber();
#endif
}

Fiber::Fiber(size_t stack_bytes, size_t colour) : bytes_(stack_bytes), colour_(colour) {
  const size_t guard = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* mapping = mmap(nullptr, guard + bytes_, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  Check(mapping != MAP_FAILED, "memory for a fiber's stack");
  Check(mprotect(mapping, guard, PROT_NONE) == 0, "a fiber's guard page");
  mapping_ = static_cast<char*>(mapping);
  bottom_ = mapping_ + guard;
}

Fiber::~Fiber() {
  if (mapping_ == nullptr) {
    return;
  }
#ifdef __SANITIZE_THREAD__
  if (thread_fiber_ != nullptr) {
    __tsan_destroy_fiber(thread_fiber_);
  }
#endif
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(bottom_, bytes_);
#endif
  const size_t guard = static_cast<const char*>(bottom_) - mapping_;
  munmap(mapping_, guard + bytes_);
}

void Fiber::Prepare(void (*entry)(void*), void* argument) {
  entry_ = entry;
  argument_ = argument;
#ifdef __SANITIZE_ADDRESS__
  // A run leaves red zones: one that was abandoned anywhere, one that ended in its first frames.
  // Clearing the marks of the whole stack takes 5 us.
  constexpr size_t kFirstFrames = 8192;
  const size_t marked = ended_ ? kFirstFrames : bytes_;
  __asan_unpoison_memory_region(static_cast<const char*>(bottom_) + bytes_ - marked, marked);
  fake_stack_ = nullptr;
#endif
#ifdef __SANITIZE_THREAD__
  // Making one takes a millisecond. What is left on its stack of calls, which holds 65536, at the
  // end of a run stays there.
  constexpr int kMostRuns = 1000;
  if (thread_fiber_ == nullptr || ++runs_ == kMostRuns) {
    if (thread_fiber_ != nullptr) {
      __tsan_destroy_fiber(thread_fiber_);
    }
    thread_fiber_ = __tsan_create_fiber(0);
    runs_ = 0;
  }
#endif
  ended_ = false;
  void* top = static_cast<char*>(const_cast<void*>(bottom_)) + bytes_ - colour_;
  context_ = context::make_fcontext(top, bytes_ - colour_, [](context::transfer_t arrival) {
    Fiber& self = Arrive(arrival.data, arrival.fctx);
    self.entry_(self.argument_);
    Check(false, "a fiber's entry does not return");
  });
}

Fiber& Fiber::Arrive(void* came_from, void* context) {
  Fiber& from = *static_cast<Fiber*>(came_from);
  Fiber& self = *from.target_;
  from.context_ = context;
  self.FinishSwitch(from);
  return self;
}

void Fiber::FinishSwitch([[maybe_unused]] Fiber& from) {
#ifdef __SANITIZE_ADDRESS__
  const void* bottom = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(fake_stack_, &bottom, &bytes);
  if (from.mapping_ == nullptr) {  // the thread's own stack, whose place only the sanitizer knows
    from.bottom_ = bottom;
    from.bytes_ = bytes;
  }
#endif
}

void Fiber::SwitchTo(Fiber& other, bool ends) {
  target_ = &other;
  ended_ = ends;
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(ends ? nullptr : &fake_stack_, other.bottom_, other.bytes_);
#endif
#ifdef __SANITIZE_THREAD__
  __tsan_switch_to_fiber(other.thread_fiber_, 0);
#endif
  const context::transfer_t arrival = context::jump_fcontext(other.context_, this);
  Arrive(arrival.data, arrival.fctx);
}

}  // namespace attnd::kernels::cuda::emulation
