// The engine as the server sees it: a model on a backend, its sessions, and the thread that runs
// their steps.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/clock.h"
#include "core/executor.h"
#include "core/layer_plan.h"
#include "core/mla_shadow.h"
#include "core/model_config.h"
#include "core/page_pool.h"
#include "core/scheduler.h"
#include "core/session_store.h"
#include "core/snapshot.h"
#include "core/snapshot_import.h"
#include "core/step.h"
#include "core/weights.h"
#include "kernels/backend.h"

namespace attnd {

struct EngineOptions {
  DType cache_dtype = DType::kF32;
  std::optional<DType> weight_dtype;  // nullopt: as stored in the file
  int64_t kv_cache_bytes = 0;
  int64_t mla_shadow_bytes = 0;  // 0: no shadows (core/mla_shadow.h)
  int64_t max_rewind = 64;
  int64_t idle_ttl_ns = 600'000'000'000;
  int64_t max_idle_ttl_ns = 86'400'000'000'000;
  int64_t max_sessions = 100'000;
  bool evict_idle = false;  // StoreLimits
  int64_t max_batch_rows = 1024;
  int64_t prefill_chunk_rows = 512;  // <= max_batch_rows
  double prefill_chunk_gflop = 5;
  int64_t max_queue = 4096;  // steps waiting, all connections
};

// OK when a pool of so many bytes has room for a page of every kind at the same time.
absl::Status CheckCacheBytes(const LayerPlan& plan, DType cache_dtype, int64_t kv_cache_bytes);

// OK for 0, or when so many bytes hold a page of a shadow.
absl::Status CheckShadowBytes(const LayerPlan& plan, int64_t mla_shadow_bytes);

// One consistent moment, for GetStats and /metrics.
struct EngineStats {
  PoolStats pool;
  int64_t shadow_bytes = 0;  // in use
  StoreStats store;
  int64_t queued_steps = 0;
  int64_t running_rows = 0;
};

class Engine {
 public:
  // Packs the weights and takes all memory; nothing runs yet. `on_batch` is called after
  // every batch that had rows, by one thread at a time; it must not block.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(
      const ModelConfig& config, WeightSource* weights, std::unique_ptr<kernels::Backend> backend,
      const EngineOptions& options, const Clock& clock,
      std::function<void(const BatchReport&)> on_batch);
  ~Engine();

  const ModelConfig& config() const { return config_; }
  const LayerPlan& plan() const { return plan_; }
  const EngineOptions& options() const { return options_; }
  const kernels::Backend& backend() const { return *backend_; }
  PagePool& pool() { return *pool_; }
  SessionStore& sessions() { return *sessions_; }

  // Queues a step. OK: the engine owns it and calls step->done exactly once. Otherwise
  // (QUEUE_FULL, DRAINING) the caller still owns it and `done` is never called.
  absl::Status Enqueue(std::unique_ptr<Step>* step) { return scheduler_->Enqueue(step); }
  // Likewise; but a small step that finds the started engine idle is run, and answered, on the
  // caller's thread before this returns: two switches between threads fewer, about a tenth of
  // what a Decode of one row costs beyond its computing (1.31 to 1.18 times a bare echo).
  absl::Status EnqueueOrRun(std::unique_ptr<Step>* step);
  // QUEUE_FULL or DRAINING when Enqueue() would refuse any step now.
  absl::Status CheckRoom() const { return scheduler_->CheckRoom(); }
  // Has `job` run by whoever runs batches, between two of them: for a short use of the backend,
  // such as a copy of a mebibyte. False when the engine has stopped: it never runs.
  bool Post(std::function<void(kernels::Backend*)> job);

  // From an operation on the session; see Snapshot::Take().
  absl::StatusOr<std::unique_ptr<Snapshot>> TakeSnapshot(const std::shared_ptr<Session>& session,
                                                         bool move);
  // See SnapshotImport::Begin().
  absl::StatusOr<std::unique_ptr<SnapshotImport>> BeginImport(const SnapshotState& state);

  // Wakes the engine so that a step whose `cancelled` was set is answered soon.
  void Poke() { scheduler_->Poke(); }

  EngineStats stats() const;

  // One round: reaps, runs a batch, answers what is done. True when it did anything. For tests,
  // and for the engine's own thread; never for both.
  bool RunOnce();

  void Start();  // the engine's thread
  // Waits until nothing is queued or running, at most until `deadline`; true if so.
  bool Drain(MonotonicNs deadline) const;
  // Fails what is queued with DRAINING, ends the thread. Idempotent.
  void Stop();

 private:
  Engine(const ModelConfig& config, const EngineOptions& options, const Clock& clock,
         std::unique_ptr<kernels::Backend> backend,
         std::function<void(const BatchReport&)> on_batch);
  absl::Status Build(WeightSource* weights);
  // Lets go of the lock before it answers.
  bool RunAndAnswer(std::unique_lock<std::mutex>* lock);
  bool RunJob();
  void RunBatch(const std::vector<WorkItem*>& batch);
  // Computing that may keep the caller's thread: tens of microseconds.
  bool IsSmall(const Step& step) const;
  absl::Status MakeShadows();
  void Loop();
  // True when it gave memory back.
  bool TrimPool(bool idle);

  const ModelConfig config_;
  const LayerPlan plan_;
  const EngineOptions options_;
  const Clock& clock_;
  const std::function<void(const BatchReport&)> on_batch_;
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<kernels::DeviceMemory> pool_memory_;
  std::unique_ptr<PagePool> pool_;
  std::unique_ptr<kernels::DeviceMemory> shadow_memory_;
  std::unique_ptr<ShadowStore> shadows_;
  std::unique_ptr<SessionStore> sessions_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Scheduler> scheduler_;
  // Held by whoever runs batches: the backend, the executor and what they fill are used by one
  // thread at a time.
  std::mutex running_;
  std::atomic<int64_t> running_rows_{0};
  std::mutex jobs_mutex_;
  std::deque<std::function<void(kernels::Backend*)>> jobs_;
  bool jobs_closed_ = false;
  MonotonicNs last_trim_ = 0;
  std::atomic<bool> started_{false};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace attnd
