#include "kernels/cpu/worker_pool.h"

#include "kernels/check.h"

namespace attnd::kernels {
namespace {

constexpr uint64_t kOpen = 1;
constexpr uint64_t kInside = 2;
constexpr uint64_t kInsideMask = 0xfffffffe;
constexpr int kEpochShift = 32;
// About 20-40 us of pauses: longer than the gap between two operations, far shorter than a tick.
constexpr int kSpins = 1000;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

WorkerPool::WorkerPool(int threads) {
  Check(threads >= 1, "a pool has at least the calling thread");
  workers_.reserve(static_cast<size_t>(threads - 1));
  for (int worker = 1; worker < threads; ++worker) {
    workers_.emplace_back([this, worker] { WorkerLoop(worker); });
  }
}

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_.store(true);
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) {
    worker.join();
  }
}

void WorkerPool::Run(int64_t tasks, Function function, void* context) {
  if (tasks <= 1 || workers_.empty()) {
    for (int64_t task = 0; task < tasks; ++task) {
      function(context, task, 0);
    }
    return;
  }
  function_ = function;
  context_ = context;
  tasks_ = tasks;
  next_task_.store(0, std::memory_order_relaxed);
  const uint64_t epoch = (state_.load(std::memory_order_relaxed) >> kEpochShift) + 1;
  // Sequentially consistent against sleepers_: either the worker about to sleep sees the new
  // epoch or this thread sees the sleeper.
  state_.store(epoch << kEpochShift | kOpen);
  if (sleepers_.load() > 0) {
    { const std::lock_guard<std::mutex> lock(mutex_); }
    wake_.notify_all();
  }
  TakeTasks(0);
  uint64_t state = state_.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
  for (int spins = 0; (state & kInsideMask) != 0; ++spins) {
    if (spins < kSpins) {
      Pause();
    } else {
      std::this_thread::yield();
    }
    state = state_.load(std::memory_order_acquire);
  }
}

void WorkerPool::TakeTasks(int worker) {
  for (;;) {
    const int64_t task = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (task >= tasks_) {
      return;
    }
    function_(context_, task, worker);
  }
}

bool WorkerPool::TryJoin(uint64_t* seen) {
  uint64_t state = state_.load();
  while ((state & kOpen) != 0 && (state >> kEpochShift) != *seen) {
    if (state_.compare_exchange_weak(state, state + kInside, std::memory_order_acq_rel)) {
      *seen = state >> kEpochShift;
      return true;
    }
  }
  return false;
}

void WorkerPool::WorkerLoop(int worker) {
  uint64_t seen = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    bool joined = false;
    for (int spins = 0; spins < kSpins && !joined; ++spins) {
      joined = TryJoin(&seen);
      if (!joined) {
        Pause();
      }
    }
    if (!joined) {
      std::unique_lock<std::mutex> lock(mutex_);
      sleepers_.fetch_add(1);
      wake_.wait(lock, [&] { return stop_.load() || (joined = TryJoin(&seen)); });
      sleepers_.fetch_sub(1);
    }
    if (joined) {
      TakeTasks(worker);
      state_.fetch_sub(kInside, std::memory_order_acq_rel);
    }
  }
}

}  // namespace attnd::kernels
