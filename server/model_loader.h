// From the configuration to a model that can run: configuration file, weights, plan of bytes,
// engine.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "attnd/v1/attnd.pb.h"
#include "core/clock.h"
#include "core/engine.h"
#include "core/layer_plan.h"
#include "core/model_config.h"
#include "core/weights.h"
#include "server/config.h"
#include "server/device.h"

namespace attnd::server {

struct OpenedModel {
  ModelConfig config;
  LayerPlan plan;
  std::unique_ptr<WeightSource> weights;
};

// Reads and checks the configuration and the weights' headers; nothing large is read.
absl::StatusOr<OpenedModel> OpenModel(const Config& config);

// Bytes of the weights as they will be held.
int64_t WeightBytes(const Config& config, const OpenedModel& model);

// The default of --kv_cache_bytes: a part of what is left of `left_bytes` beside the weights, at
// least 64 MiB.
int64_t DefaultCacheBytes(int64_t left_bytes, int64_t weight_bytes, double share);

// Replaces the automatic values by what they mean on this device for this model.
void ResolveAutomatic(const OpenedModel& model, const OpenedDevice& device, Config* config);

// What can be said of the cache's budget before anything is taken; `config` is resolved.
absl::Status CheckModel(const Config& config, const OpenedModel& model, const MemoryLimit& memory);

// What --check prints: names and values.
std::vector<std::pair<std::string, std::string>> PlannedBytes(const Config& config,
                                                              const OpenedModel& model);

// Packs the weights, takes the memory. Automatic values are resolved.
absl::StatusOr<std::unique_ptr<Engine>> MakeEngine(
    const Config& config, const OpenedModel& model, std::unique_ptr<kernels::Backend> backend,
    const Clock& clock, std::function<void(const BatchReport&)> on_batch);

// What GetModel answers.
absl::StatusOr<v1::ModelInfo> MakeModelInfo(const Config& config, const OpenedModel& model,
                                            Engine& engine, const std::string& version);

}  // namespace attnd::server
