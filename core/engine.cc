#include "core/engine.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/layer_weights.h"
#include "core/planner.h"
#include "kernels/check.h"

namespace attnd {
namespace {

// What is not answered yet fails; its cache is as before.
void FailAll(const std::vector<WorkItem*>& batch, const std::exception& error) {
  for (WorkItem* item : batch) {
    if (!item->finished) {
      item->Fail(MakeError(Reason::kInternal, std::string("the batch failed: ") + error.what()));
    }
  }
}

// A busy engine begins to give freed slabs back this often; an idle one at once.
constexpr int64_t kTrimIntervalNs = 200'000'000;
// Slabs given back between two batches: about a millisecond that their steps wait.
constexpr int64_t kTrimmedAtOnce = 8;

PerKind PageBytes(const LayerPlan& plan, DType cache_dtype) {
  const auto page = [&](LayerKind kind) {
    return plan.CountOf(kind) > 0 ? kernels::kPageTokens * plan.TokenBytes(kind, cache_dtype) : 0;
  };
  PerKind page_bytes{};
  page_bytes[Index(PageKind::kGlobal)] = page(LayerKind::kGlobal);
  page_bytes[Index(PageKind::kLocal)] = page(LayerKind::kLocal);
  page_bytes[Index(PageKind::kHeld)] =
      kHeldPageRows * plan.d_model * static_cast<int64_t>(sizeof(float));
  return page_bytes;
}

int64_t ShadowPageBytes(const LayerPlan& plan) {
  return kernels::kPageTokens * kernels::ShadowOf(plan.global.shape).row_elements() *
         DTypeSize(DType::kF32);
}

}  // namespace

absl::Status CheckCacheBytes(const LayerPlan& plan, DType cache_dtype, int64_t kv_cache_bytes) {
  const int64_t least = PagePool::LeastBytes(PageBytes(plan, cache_dtype));
  if (kv_cache_bytes >= least) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("kv_cache_bytes is " + std::to_string(kv_cache_bytes) +
                                    "; this model needs at least " + std::to_string(least) +
                                    ", a slab for each kind of page");
}

absl::Status CheckShadowBytes(const LayerPlan& plan, int64_t mla_shadow_bytes) {
  if (mla_shadow_bytes == 0 || mla_shadow_bytes >= ShadowPageBytes(plan)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "mla_shadow_bytes is " + std::to_string(mla_shadow_bytes) + "; expected 0 or at least " +
      std::to_string(ShadowPageBytes(plan)) + ", one page of this model");
}

Engine::Engine(const ModelConfig& config, const EngineOptions& options, const Clock& clock,
               std::unique_ptr<kernels::Backend> backend,
               std::function<void(const BatchReport&)> on_batch)
    : config_(config),
      plan_(MakeLayerPlan(config)),
      options_(options),
      clock_(clock),
      on_batch_(std::move(on_batch)),
      backend_(std::move(backend)) {}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(
    const ModelConfig& config, WeightSource* weights, std::unique_ptr<kernels::Backend> backend,
    const EngineOptions& options, const Clock& clock,
    std::function<void(const BatchReport&)> on_batch) {
  Check(options.prefill_chunk_rows >= 1 && options.prefill_chunk_rows <= options.max_batch_rows,
        "a chunk fits into a batch");
  std::unique_ptr<Engine> engine(
      new Engine(config, options, clock, std::move(backend), std::move(on_batch)));
  if (absl::Status status = engine->Build(weights); !status.ok()) {
    return status;
  }
  return engine;
}

absl::Status Engine::Build(WeightSource* weights) {
  absl::StatusOr<std::vector<LayerWeights>> packed =
      PackWeights(plan_, weights, options_.weight_dtype, backend_.get());
  if (!packed.ok()) {
    return packed.status();
  }
  const PerKind page_bytes = PageBytes(plan_, options_.cache_dtype);
  if (absl::Status status = CheckCacheBytes(plan_, options_.cache_dtype, options_.kv_cache_bytes);
      !status.ok()) {
    return status;
  }
  absl::StatusOr<std::unique_ptr<kernels::DeviceMemory>> memory =
      backend_->Allocate("the page pool (--kv_cache_bytes)", options_.kv_cache_bytes);
  if (!memory.ok()) {
    return memory.status();
  }
  pool_memory_ = *std::move(memory);
  pool_ = std::make_unique<PagePool>(pool_memory_.get(), page_bytes);

  if (absl::Status status = MakeShadows(); !status.ok()) {
    return status;
  }

  StoreLimits store;
  store.max_rewind = options_.max_rewind;
  store.idle_ttl_ns = options_.idle_ttl_ns;
  store.max_idle_ttl_ns = options_.max_idle_ttl_ns;
  store.max_sessions = options_.max_sessions;
  store.chunk_rows = options_.prefill_chunk_rows;
  store.evict_idle = options_.evict_idle;
  sessions_ = std::make_unique<SessionStore>(plan_, store, pool_.get(), clock_);

  absl::StatusOr<std::unique_ptr<Executor>> executor = Executor::Create(
      plan_, *std::move(packed), {options_.max_batch_rows, options_.cache_dtype, shadows_.get()},
      pool_.get(), backend_.get(), clock_);
  if (!executor.ok()) {
    return executor.status();
  }
  executor_ = *std::move(executor);

  SchedulerLimits limits;
  limits.max_batch_rows = options_.max_batch_rows;
  limits.max_queue = options_.max_queue;
  limits.chunk = {options_.prefill_chunk_rows, options_.prefill_chunk_gflop * 1e9};
  scheduler_ = std::make_unique<Scheduler>(plan_, limits, clock_);
  pool_->SetReliever([this](int64_t bytes) { return sessions_->MakeRoom(bytes); });
  sessions_->SetExpiryListener([this] { scheduler_->Poke(); });
  sessions_->SetEndListener([this] { scheduler_->Poke(); });
  return absl::OkStatus();
}

absl::Status Engine::MakeShadows() {
  if (options_.mla_shadow_bytes == 0 || plan_.CountOf(LayerKind::kGlobal) == 0) {
    return absl::OkStatus();
  }
  if (absl::Status status = CheckShadowBytes(plan_, options_.mla_shadow_bytes); !status.ok()) {
    return status;
  }
  absl::StatusOr<std::unique_ptr<kernels::DeviceMemory>> memory =
      backend_->Allocate("shadows (--mla_shadow_bytes)", options_.mla_shadow_bytes);
  if (!memory.ok()) {
    return memory.status();
  }
  shadow_memory_ = *std::move(memory);
  shadows_ = std::make_unique<ShadowStore>(shadow_memory_.get(), ShadowPageBytes(plan_));
  return absl::OkStatus();
}

Engine::~Engine() { Stop(); }

EngineStats Engine::stats() const {
  EngineStats stats;
  stats.pool = pool_->stats();
  stats.shadow_bytes = shadows_ == nullptr ? 0 : shadows_->used_bytes();
  stats.store = sessions_->stats();
  stats.queued_steps = scheduler_->queued_steps();
  stats.running_rows = running_rows_.load(std::memory_order_relaxed);
  return stats;
}

bool Engine::RunOnce() {
  std::unique_lock<std::mutex> lock(running_);
  return RunAndAnswer(&lock);
}

bool Engine::RunAndAnswer(std::unique_lock<std::mutex>* lock) {
  bool active = false;
  if (sessions_->next_expiry() <= clock_.Now()) {
    active = sessions_->ReapExpired() > 0;
  }
  const std::vector<WorkItem*> batch = scheduler_->NextBatch();
  active = RunJob() || active;
  if (!batch.empty()) {
    active = true;
    RunBatch(batch);
  }
  std::vector<std::unique_ptr<Step>> finished = scheduler_->TakeFinished();
  active = active || !finished.empty();
  active = TrimPool(!active) || active;
  lock->unlock();
  for (std::unique_ptr<Step>& step : finished) {
    const auto done = std::move(step->done);
    done(std::move(step));
  }
  return active;
}

bool Engine::Post(std::function<void(kernels::Backend*)> job) {
  {
    std::lock_guard lock(jobs_mutex_);
    if (jobs_closed_) {
      return false;
    }
    jobs_.push_back(std::move(job));
  }
  scheduler_->WakeForJob();
  return true;
}

absl::StatusOr<std::unique_ptr<Snapshot>> Engine::TakeSnapshot(
    const std::shared_ptr<Session>& session, bool move) {
  return Snapshot::Take({plan_, options_.cache_dtype, pool_.get(), clock_}, session, move);
}

absl::StatusOr<std::unique_ptr<SnapshotImport>> Engine::BeginImport(const SnapshotState& state) {
  return SnapshotImport::Begin(plan_, pool_.get(), sessions_.get(), state);
}

bool Engine::RunJob() {
  std::function<void(kernels::Backend*)> job;
  {
    std::lock_guard lock(jobs_mutex_);
    if (jobs_.empty()) {
      return false;
    }
    job = std::move(jobs_.front());
    jobs_.pop_front();
  }
  job(backend_.get());
  return true;
}

void Engine::RunBatch(const std::vector<WorkItem*>& batch) {
  int64_t rows = 0;
  for (const WorkItem* item : batch) {
    rows += item->is_operation() ? 0 : item->chunk().rows();
  }
  running_rows_.store(rows, std::memory_order_relaxed);
  try {  // memory for a step's answer may be wanting; a thread of gRPC's or the engine's goes on
    const BatchReport report = executor_->Run(batch);
    if (report.rows() > 0 && on_batch_) {
      on_batch_(report);
    }
  } catch (const std::exception& error) {
    backend_->Synchronize();  // what it was asked for may still write into the steps
    FailAll(batch, error);
  }
  running_rows_.store(0, std::memory_order_relaxed);
  scheduler_->Return(batch);
}

bool Engine::TrimPool(bool idle) {
  const MonotonicNs now = clock_.Now();
  if (!idle && now - last_trim_ < kTrimIntervalNs) {
    return false;
  }
  if (pool_->Trim(kTrimmedAtOnce) > 0) {
    return true;  // there may be more: the next round goes on
  }
  last_trim_ = now;
  return false;
}

bool Engine::IsSmall(const Step& step) const {
  constexpr double kSmallFlop = 5e6;
  double flop = 0;
  for (const SequenceStep& part : step.sequences) {
    if (step.kind != StepKind::kOperation && part.status.ok()) {
      const LayerKind kind = plan_.layers[static_cast<size_t>(step.layer)];
      flop += ChunkFlop(plan_, kind, part.position, part.rows);
    }
  }
  return flop <= kSmallFlop;
}

absl::Status Engine::EnqueueOrRun(std::unique_ptr<Step>* step) {
  if (!started_.load() || !IsSmall(**step)) {
    return Enqueue(step);
  }
  std::unique_lock<std::mutex> lock(running_, std::try_to_lock);
  if (!lock.owns_lock() || scheduler_->active_steps() > 0) {
    return Enqueue(step);
  }
  if (absl::Status status = scheduler_->Enqueue(step, /*wake=*/false); !status.ok()) {
    return status;
  }
  RunAndAnswer(&lock);
  if (scheduler_->active_steps() > 0) {
    scheduler_->Wake();
  }
  return absl::OkStatus();
}

void Engine::Start() {
  started_.store(true);
  thread_ = std::thread([this] { Loop(); });
}

void Engine::Loop() {
  while (!stop_.load()) {
    if (!RunOnce()) {
      scheduler_->Wait(sessions_->next_expiry());
    }
  }
  while (RunOnce()) {
  }
}

bool Engine::Drain(MonotonicNs deadline) const {
  while (scheduler_->active_steps() > 0) {
    if (clock_.Now() >= deadline) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

void Engine::Stop() {
  if (scheduler_ == nullptr) {
    return;  // it could not be built
  }
  started_.store(false);
  scheduler_->Stop();
  stop_.store(true);
  if (thread_.joinable()) {
    thread_.join();
  }
  {
    std::lock_guard lock(jobs_mutex_);
    jobs_closed_ = true;
  }
  while (RunJob()) {
  }
}

}  // namespace attnd
