// Signals as events, for commands that must put something in order before they end.
#pragma once

#include <initializer_list>

namespace attnd::attnctl {

class SignalWatch {
 public:
  // Blocks the signals for this thread and all that it starts later: construct it first.
  explicit SignalWatch(std::initializer_list<int> signals);
  // Signals end the process again.
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // For poll(): readable while a signal waits.
  int fd() const { return fd_; }
  // The signal that waits, taken; 0 when there is none.
  int Take();
  // The next signal that comes within `ms` milliseconds; 0 when there is none.
  int WaitMs(int ms);

 private:
  int fd_ = -1;
};

}  // namespace attnd::attnctl
