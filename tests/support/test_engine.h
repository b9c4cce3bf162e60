// An engine without a thread, driven by the test, with a clock that the test moves.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/engine.h"

namespace attnd {

class ManualClock final : public Clock {
 public:
  MonotonicNs Now() const override { return now_.load(); }
  int64_t WallNs() const override { return 1'700'000'000'000'000'000 + now_.load(); }
  void Advance(int64_t ns) { now_ += ns; }

 private:
  std::atomic<MonotonicNs> now_{1'000'000'000};
};

struct TestEngineOptions {
  EngineOptions engine;
  int threads = 1;
  std::string isa = "best";
  // Another backend than the CPU's.
  std::function<std::unique_ptr<kernels::Backend>()> backend;

  TestEngineOptions() { engine.kv_cache_bytes = int64_t{256} << 20; }
};

// APEX-1 tiny with another window and frequency, small enough to try everything on.
ModelConfig TinyConfig(int64_t window, int64_t global_layer_freq, int64_t n_layers = 2);

// Rows of pseudo-random values in [-1, 1), a function of the seed.
std::vector<float> RandomRows(uint64_t seed, int64_t rows, int64_t d_model);

class TestEngine {
 public:
  // Aborts the test's process when the engine cannot be made: a broken test.
  TestEngine(const ModelConfig& config, const std::string& weights,
             const TestEngineOptions& options = {});

  Engine& engine() { return *engine_; }
  ManualClock& clock() { return clock_; }
  const std::vector<BatchReport>& batches() const { return batches_; }

  // The next batch throws std::bad_alloc after its computation.
  void ThrowInNextBatch() { throw_ = true; }

  // Creates a session and returns its id.
  std::string Create(int64_t prefix = 0, int64_t max_tokens = 0, const std::string& id = "");
  std::shared_ptr<Session> Find(const std::string& id);

  // Steps of one session, ready to be changed and run.
  std::unique_ptr<Step> Prefill(const std::string& id, int64_t layer, int64_t position,
                                std::vector<float> hidden);
  std::unique_ptr<Step> Decode(const std::vector<std::string>& ids, int64_t layer,
                               const std::vector<int64_t>& positions, std::vector<float> hidden,
                               int64_t tokens = 1);
  std::unique_ptr<Step> Rewind(const std::string& id, int64_t position);

  // Queues the step; its end goes to finished().
  void Enqueue(std::unique_ptr<Step> step);
  std::vector<std::unique_ptr<Step>>& finished() { return finished_; }
  // Runs rounds until there is nothing to do.
  void RunAll();
  // Enqueue, RunAll, and the finished step.
  std::unique_ptr<Step> Run(std::unique_ptr<Step> step);

 private:
  ManualClock clock_;
  std::vector<BatchReport> batches_;
  bool throw_ = false;
  std::unique_ptr<WeightSource> weights_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::unique_ptr<Step>> finished_;
};

}  // namespace attnd
