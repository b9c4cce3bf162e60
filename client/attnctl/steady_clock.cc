// The clock of a load, and waiting for a time of it.
#include "client/attnctl/steady_clock.h"

#include <sys/prctl.h>

namespace attnd::attnctl {

int64_t SteadyClock::NowNs() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin_).count();
}

void SteadyClock::SleepUntilNs(int64_t ns) {
  // Linux lets a thread oversleep by 50 us, a third of a small Decode: by 1 ns then.
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  std::unique_lock<std::mutex> lock(mutex_);
  woken_.wait_until(lock, begin_ + std::chrono::nanoseconds(ns), [this] { return awake_; });
}

void SteadyClock::Wake() {
  const std::lock_guard<std::mutex> lock(mutex_);
  awake_ = true;
  woken_.notify_all();
}

}  // namespace attnd::attnctl
