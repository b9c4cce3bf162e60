#include "kernels/cpu/worker_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <numeric>

namespace attnd::kernels {
namespace {

TEST(WorkerPoolTest, EveryTaskOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    WorkerPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const int64_t tasks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> seen(static_cast<size_t>(tasks));
      pool.ParallelFor(tasks, [&](int64_t task, int worker) {
        EXPECT_GE(worker, 0);
        EXPECT_LT(worker, threads);
        seen[static_cast<size_t>(task)].fetch_add(1);
      });
      for (const std::atomic<int>& count : seen) {
        EXPECT_EQ(count.load(), 1);
      }
    }
  }
}

// Plain writes: a call's effects are visible after it, and to the workers of the next.
TEST(WorkerPoolTest, ManyCallsSeeEachOthersEffects) {
  for (const int threads : {1, 2, 3, 5}) {
    WorkerPool pool(threads);
    std::vector<int64_t> values(97, 0);
    for (int call = 0; call < 3000; ++call) {
      pool.ParallelFor(97, [&](int64_t task, int /*worker*/) {
        values[static_cast<size_t>(task)] += values[static_cast<size_t>(task)] == call ? 1 : 1000;
      });
    }
    EXPECT_EQ(std::accumulate(values.begin(), values.end(), int64_t{0}), 97 * 3000);
  }
}

TEST(WorkerPoolTest, WorkersThatSleptWakeUp) {
  WorkerPool pool(3);
  for (int call = 0; call < 20; ++call) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::atomic<int64_t> sum{0};
    pool.ParallelFor(50, [&](int64_t task, int /*worker*/) { sum += task; });
    EXPECT_EQ(sum.load(), 50 * 49 / 2);
  }
}

TEST(WorkerPoolTest, AWorkerHasItsScratchToItself) {
  WorkerPool pool(4);
  std::vector<int64_t> scratch(4, 0);
  for (int call = 0; call < 200; ++call) {
    pool.ParallelFor(64,
                     [&](int64_t /*task*/, int worker) { ++scratch[static_cast<size_t>(worker)]; });
  }
  EXPECT_EQ(std::accumulate(scratch.begin(), scratch.end(), int64_t{0}), 200 * 64);
}

TEST(WorkerPoolTest, IdleCostsNothing) {
  WorkerPool pool(8);
  pool.ParallelFor(8, [](int64_t, int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const double cpu_seconds = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  EXPECT_LT(cpu_seconds, 0.03) << "idle workers burn the processor";
}

TEST(WorkerPoolTest, MadeAndDestroyedAtOnce) {
  for (int i = 0; i < 50; ++i) {
    WorkerPool pool(4);
  }
}

}  // namespace
}  // namespace attnd::kernels
