// A fixed pool of threads that splits one operation at a time. The calling thread is worker 0.
//
// A call allocates nothing. Workers take tasks from a shared counter, spin for a few tens of
// microseconds after the last one (operations of a layer follow each other within that) and then
// sleep. A worker that wakes too late for a call simply misses it: nobody waits for it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace attnd::kernels {

class WorkerPool {
 public:
  explicit WorkerPool(int threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls f(task, worker) for every task in [0, tasks), worker in [0, threads()); returns when
  // all are done. One call at a time; f does not call back into the pool.
  template <typename F>
  void ParallelFor(int64_t tasks, F&& f) {
    using Callable = std::remove_reference_t<F>;
    Run(
        tasks,
        [](void* context, int64_t task, int worker) {
          (*static_cast<Callable*>(context))(task, worker);
        },
        const_cast<void*>(static_cast<const void*>(&f)));
  }

 private:
  using Function = void (*)(void* context, int64_t task, int worker);

  void Run(int64_t tasks, Function function, void* context);
  void WorkerLoop(int worker);
  void TakeTasks(int worker);
  // True when a call newer than `*seen` is open and this worker has joined it.
  bool TryJoin(uint64_t* seen);

  // The call being run. Written only while no worker is inside.
  Function function_ = nullptr;
  void* context_ = nullptr;
  int64_t tasks_ = 0;
  std::atomic<int64_t> next_task_{0};

  // epoch << 32 | workers inside << 1 | open. One word, so that joining and closing cannot cross.
  std::atomic<uint64_t> state_{0};
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::thread> workers_;
};

}  // namespace attnd::kernels
