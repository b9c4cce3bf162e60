// SIGTERM and SIGINT.
#include "server/stop_signals.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <thread>

namespace attnd::server {

struct StopSignals::State {
  std::mutex mutex;
  std::condition_variable wake;
  bool serving = false;
  bool asked = false;
};

StopSignals::StopSignals() : state_(std::make_shared<State>()) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  std::thread([state = state_, signals] {
    for (;;) {
      int number = 0;
      if (sigwait(&signals, &number) != 0) {
        continue;
      }
      const std::lock_guard<std::mutex> lock(state->mutex);
      if (!state->serving) {
        _exit(0);
      }
      if (state->asked) {
        _exit(128 + number);
      }
      state->asked = true;
      state->wake.notify_all();
    }
  }).detach();  // it lives as long as the process, and holds nothing but the state
}

void StopSignals::ServingBegan() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->serving = true;
}

void StopSignals::Wait() {
  std::unique_lock<std::mutex> lock(state_->mutex);
  state_->wake.wait(lock, [this] { return state_->asked; });
}

}  // namespace attnd::server
