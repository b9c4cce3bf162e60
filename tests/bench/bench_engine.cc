// Whole layers through the engine, in process, on its caller's thread. Flags: harness.h.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/planner.h"
#include "kernels/check.h"
#include "tests/bench/harness.h"
#include "tests/support/test_engine.h"

namespace attnd::bench {
namespace {

constexpr int64_t kGlobalLayer = 1;  // layer 0 is local

// Two layers of a built-in model, one of each kind.
ModelConfig TwoLayers(const std::string& model) {
  absl::StatusOr<ModelConfig> config = LoadModelConfig("builtin:" + model);
  Check(config.ok(), "a built-in model is known");
  config->n_layers = 2;
  config->global_layer_freq = 2;
  return *config;
}

// Made when a benchmark first needs it, and kept: weights take seconds.
class LazyEngine {
 public:
  LazyEngine(const Setting& setting, const std::string& model) : setting_(setting), model_(model) {}

  TestEngine& Get() {
    if (engine_ == nullptr) {
      TestEngineOptions options;
      options.threads = setting_.threads;
      options.isa = setting_.isa;
      options.engine.cache_dtype = DType::kBF16;
      options.engine.weight_dtype = DType::kBF16;
      options.engine.kv_cache_bytes = int64_t{2} << 30;
      engine_ = std::make_unique<TestEngine>(TwoLayers(model_), "random:1", options);
    }
    return *engine_;
  }

 private:
  const Setting setting_;
  const std::string model_;
  std::unique_ptr<TestEngine> engine_;
};

using Engines = std::shared_ptr<LazyEngine>;

LayerKind KindOf(int64_t layer) {
  return layer == kGlobalLayer ? LayerKind::kGlobal : LayerKind::kLocal;
}

void MustBeOk(const Step& step) { Check(step.Outcome().ok(), "a benchmark's step goes well"); }

// Rows [0, rows) of an empty layer.
void Prefill(benchmark::State& state, LazyEngine& lazy, int64_t layer, int64_t rows) {
  TestEngine& engine = lazy.Get();
  const std::string id = engine.Create();
  const int64_t width = engine.engine().plan().d_model;
  const std::vector<float> hidden = RandomRows(1, rows, width);
  for (auto _ : state) {
    state.PauseTiming();
    auto step = engine.Prefill(id, layer, 0, hidden);
    step->sequences[0].rewind = true;
    state.ResumeTiming();
    step = engine.Run(std::move(step));
    MustBeOk(*step);
  }
  engine.engine().sessions().Close("", id).IgnoreError();
  Count(state, ChunkFlop(engine.engine().plan(), KindOf(layer), 0, rows),
        static_cast<double>(rows * width * 8));
}

// One token a session at `history`, the step of before repeated.
void Decode(benchmark::State& state, LazyEngine& lazy, int64_t layer, int64_t sessions,
            int64_t history) {
  TestEngine& engine = lazy.Get();
  const int64_t width = engine.engine().plan().d_model;
  std::vector<std::string> ids;
  for (int64_t i = 0; i < sessions; ++i) {
    ids.push_back(engine.Create());
    for (int64_t at = 0; at < history; at += 512) {
      const int64_t rows = std::min<int64_t>(512, history - at);
      MustBeOk(*engine.Run(engine.Prefill(ids.back(), layer, at, RandomRows(2, rows, width))));
    }
  }
  const std::vector<float> hidden = RandomRows(3, sessions, width);
  const std::vector<int64_t> positions(ids.size(), history);
  for (auto _ : state) {
    state.PauseTiming();
    auto step = engine.Decode(ids, layer, positions, hidden);
    for (SequenceStep& part : step->sequences) {
      part.rewind = true;
    }
    state.ResumeTiming();
    step = engine.Run(std::move(step));
    MustBeOk(*step);
  }
  for (const std::string& id : ids) {
    engine.engine().sessions().Close("", id).IgnoreError();
  }
  const LayerPlan& plan = engine.engine().plan();
  Count(state, static_cast<double>(sessions) * ChunkFlop(plan, KindOf(layer), history, 1),
        static_cast<double>(sessions * history * plan.TokenBytes(KindOf(layer), DType::kBF16)));
  state.counters["tokens"] = benchmark::Counter(static_cast<double>(sessions),
                                                benchmark::Counter::kIsIterationInvariantRate);
}

void AddAll(const Setting& s) {
  const Engines medium = std::make_shared<LazyEngine>(s, "apex1-medium");
  const Engines large = std::make_shared<LazyEngine>(s, "apex1-large");
  const auto prefill = [&s](const std::string& name, const Engines& engine, int64_t layer,
                            int64_t rows) {
    Add(s, name, [=](benchmark::State& state) { Prefill(state, *engine, layer, rows); });
  };
  const auto decode = [&s](const std::string& name, const Engines& engine, int64_t layer,
                           int64_t sessions, int64_t history) {
    Add(s, name,
        [=](benchmark::State& state) { Decode(state, *engine, layer, sessions, history); });
  };
  for (const int64_t rows : {512, 2048}) {
    const std::string n = std::to_string(rows);
    prefill("medium_prefill_local/" + n, medium, 0, rows);
    prefill("medium_prefill_global/" + n, medium, kGlobalLayer, rows);
  }
  prefill("large_prefill_local/512", large, 0, 512);
  prefill("large_prefill_global/512", large, kGlobalLayer, 512);
  // 64 is also what 4 steps of 16 make of a queue: one batch (bench_stream has them come by wire).
  for (const int64_t sessions : {1, 16, 64}) {
    decode("medium_decode/" + std::to_string(sessions), medium, 0, sessions, 64);
  }
  decode("medium_decode_history/2048", medium, 0, 1, 2048);
  decode("medium_decode_history/32768", medium, 0, 1, 16 * 2048);
  decode("medium_decode_global/2048", medium, kGlobalLayer, 1, 2048);
}

}  // namespace
}  // namespace attnd::bench

int main(int argc, char** argv) {
  return attnd::bench::RunBenchmarks(argc, argv, attnd::bench::AddAll);
}
