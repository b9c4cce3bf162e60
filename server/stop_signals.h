// SIGTERM and SIGINT: the first asks the server to stop, the second ends the process at once.
#pragma once

#include <memory>

namespace attnd::server {

class StopSignals {
 public:
  // Blocks the signals for this thread and all that it starts, so construct it before any other
  // thread; a thread of its own waits for them. SIGPIPE is ignored.
  StopSignals();

  // Until here a signal ends the process at once, with status 0: nothing was served.
  void ServingBegan();
  // Returns after the first signal.
  void Wait();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace attnd::server
