#include "tests/support/test_engine.h"

#include <new>
#include <utility>

#include <utility>

#include "core/session_cut.h"
#include "kernels/check.h"
#include "kernels/cpu/cpu_backend.h"

namespace attnd {

ModelConfig TinyConfig(int64_t window, int64_t global_layer_freq, int64_t n_layers) {
  ModelConfig config = *LoadModelConfig("builtin:apex1-tiny");
  config.local_window = window;
  config.global_layer_freq = global_layer_freq;
  config.n_layers = n_layers;
  config.max_seq_len = 4096;
  return config;
}

std::vector<float> RandomRows(uint64_t seed, int64_t rows, int64_t d_model) {
  std::vector<float> values(static_cast<size_t>(rows * d_model));
  uint64_t state = seed * 0x9E3779B97F4A7C15U + 1;
  for (float& value : values) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    value = static_cast<float>(static_cast<double>(state >> 40) / (1 << 23) - 1.0);
  }
  return values;
}

TestEngine::TestEngine(const ModelConfig& config, const std::string& weights,
                       const TestEngineOptions& options) {
  absl::StatusOr<std::unique_ptr<kernels::Backend>> backend =
      options.backend ? options.backend() : kernels::MakeCpuBackend({options.threads, options.isa});
  Check(backend.ok(), "a test's backend can be made");
  absl::StatusOr<std::unique_ptr<WeightSource>> source =
      OpenWeights(weights, MakeLayerPlan(config));
  Check(source.ok(), "a test's weights can be opened");
  weights_ = *std::move(source);
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      Engine::Create(config, weights_.get(), *std::move(backend), options.engine, clock_,
                     [this](const BatchReport& report) {
                       batches_.push_back(report);
                       if (std::exchange(throw_, false)) {
                         throw std::bad_alloc();
                       }
                     });
  Check(engine.ok(), "a test's engine can be made");
  engine_ = *std::move(engine);
}

std::string TestEngine::Create(int64_t prefix, int64_t max_tokens, const std::string& id) {
  CreateOptions options;
  options.prefix_length = prefix;
  options.max_tokens = max_tokens;
  options.id = id;
  absl::StatusOr<SessionInfo> info = engine_->sessions().Create(options);
  Check(info.ok(), "a test's session can be created");
  return info->id;
}

std::shared_ptr<Session> TestEngine::Find(const std::string& id) {
  return engine_->sessions().Find("", id).value_or(nullptr);
}

std::unique_ptr<Step> TestEngine::Prefill(const std::string& id, int64_t layer, int64_t position,
                                          std::vector<float> hidden) {
  auto step = std::make_unique<Step>();
  step->kind = StepKind::kPrefill;
  step->layer = layer;
  SequenceStep part;
  part.session = Find(id);
  part.position = position;
  part.rows = static_cast<int64_t>(hidden.size()) / engine_->plan().d_model;
  step->sequences.push_back(part);
  step->hidden = std::move(hidden);
  return step;
}

std::unique_ptr<Step> TestEngine::Decode(const std::vector<std::string>& ids, int64_t layer,
                                         const std::vector<int64_t>& positions,
                                         std::vector<float> hidden, int64_t tokens) {
  auto step = std::make_unique<Step>();
  step->kind = StepKind::kDecode;
  step->layer = layer;
  for (size_t i = 0; i < ids.size(); ++i) {
    SequenceStep part;
    part.session = Find(ids[i]);
    part.position = positions[i];
    part.rows = tokens;
    step->sequences.push_back(part);
  }
  step->hidden = std::move(hidden);
  return step;
}

std::unique_ptr<Step> TestEngine::Rewind(const std::string& id, int64_t position) {
  auto step = std::make_unique<Step>();
  step->kind = StepKind::kOperation;
  step->operation = [this, position](const std::shared_ptr<Session>& session) {
    return RewindSession(engine_->plan(), position, session.get());
  };
  SequenceStep part;
  part.session = Find(id);
  part.position = position;
  step->sequences.push_back(part);
  return step;
}

void TestEngine::Enqueue(std::unique_ptr<Step> step) {
  step->done = [this](std::unique_ptr<Step> done) { finished_.push_back(std::move(done)); };
  Check(engine_->Enqueue(&step).ok(), "a test's step can be queued");
}

void TestEngine::RunAll() {
  while (engine_->RunOnce()) {
  }
}

std::unique_ptr<Step> TestEngine::Run(std::unique_ptr<Step> step) {
  Enqueue(std::move(step));
  RunAll();
  std::unique_ptr<Step> done = std::move(finished_.back());
  finished_.pop_back();
  return done;
}

}  // namespace attnd
