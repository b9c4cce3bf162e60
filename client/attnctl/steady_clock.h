// The clock of a real load.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "client/attnctl/open_loop.h"

namespace attnd::attnctl {

class SteadyClock final : public LoadClock {
 public:
  // Begins now.
  SteadyClock() : begin_(std::chrono::steady_clock::now()) {}

  int64_t NowNs() override;
  void SleepUntilNs(int64_t ns) override;
  void Wake() override;

 private:
  const std::chrono::steady_clock::time_point begin_;
  std::mutex mutex_;
  std::condition_variable woken_;
  bool awake_ = false;
};

}  // namespace attnd::attnctl
