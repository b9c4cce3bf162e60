// From the configuration to a model that can run.
#include "server/model_loader.h"

#include <algorithm>

#include "core/cache_plan.h"
#include "core/host_limits.h"
#include "kernels/params.h"
#include "server/units.h"
#include "server/validate.h"

namespace attnd::server {
namespace {

constexpr int64_t kMinDefaultCache = int64_t{64} << 20;
constexpr int64_t kUnknownMemoryCache = int64_t{1} << 30;

DType HeldWeightDtype(const Config& config, const OpenedModel& model) {
  return DTypeFromName(config.weight_dtype).value_or(model.weights->dtype());
}

}  // namespace

absl::StatusOr<OpenedModel> OpenModel(const Config& config) {
  absl::StatusOr<ModelConfig> model = LoadModelConfig(config.model);
  if (!model.ok()) {
    return model.status();
  }
  OpenedModel opened{*std::move(model), {}, nullptr};
  opened.plan = MakeLayerPlan(opened.config);
  absl::StatusOr<std::unique_ptr<WeightSource>> weights = OpenWeights(config.weights, opened.plan);
  if (!weights.ok()) {
    return weights.status();
  }
  opened.weights = *std::move(weights);
  return opened;
}

int64_t WeightBytes(const Config& config, const OpenedModel& model) {
  int64_t elements = 0;
  for (int64_t layer = 0; layer < model.plan.num_layers(); ++layer) {
    for (const TensorSpec& tensor : LayerTensors(model.plan, layer)) {
      elements += tensor.out * tensor.in;
    }
  }
  return elements * DTypeSize(HeldWeightDtype(config, model));
}

int64_t DefaultCacheBytes(int64_t left_bytes, int64_t weight_bytes, double share) {
  const auto part = static_cast<int64_t>(static_cast<double>(left_bytes - weight_bytes) * share);
  return std::max(kMinDefaultCache, part);
}

void ResolveAutomatic(const OpenedModel& model, const OpenedDevice& device, Config* config) {
  config->device = device.name;
  if (config->threads == 0) {
    config->threads = std::min<int64_t>(UsableCpus(), 1024);
  }
  if (config->cache_dtype.empty()) {
    config->cache_dtype = device.default_cache_dtype;
  }
  if (config->prefill_chunk_gflop == 0) {
    config->prefill_chunk_gflop = device.default_chunk_gflop;
  }
  if (config->kv_cache_bytes == 0) {
    const MemoryLimit& memory = device.memory;
    config->kv_cache_bytes =
        memory.limit_bytes == 0
            ? kUnknownMemoryCache
            : DefaultCacheBytes(memory.left_bytes(),
                                WeightBytes(*config, model) + config->mla_shadow_bytes,
                                device.default_cache_share);
  }
}

absl::Status CheckModel(const Config& config, const OpenedModel& model, const MemoryLimit& memory) {
  const DType cache = DTypeFromName(config.cache_dtype).value_or(DType::kF32);
  if (absl::Status status = CheckCacheBytes(model.plan, cache, config.kv_cache_bytes);
      !status.ok()) {
    return status;
  }
  if (absl::Status status = CheckShadowBytes(model.plan, config.mla_shadow_bytes); !status.ok()) {
    return status;
  }
  const auto beyond = [&memory](const std::string& what, int64_t bytes) {
    return absl::InvalidArgumentError(what + " is " + FormatBytes(bytes) +
                                      "; the memory that may be used here is " +
                                      FormatBytes(memory.limit_bytes) + " (" + memory.origin + ")");
  };
  if (memory.limit_bytes > 0 && config.kv_cache_bytes > memory.limit_bytes) {
    return beyond("--kv_cache_bytes", config.kv_cache_bytes);
  }
  const int64_t both = config.kv_cache_bytes + config.mla_shadow_bytes;
  if (memory.limit_bytes > 0 && both > memory.limit_bytes) {
    return beyond("--kv_cache_bytes + --mla_shadow_bytes", both);
  }
  return absl::OkStatus();
}

std::vector<std::pair<std::string, std::string>> PlannedBytes(const Config& config,
                                                              const OpenedModel& model) {
  const LayerPlan& plan = model.plan;
  const DType cache = DTypeFromName(config.cache_dtype).value_or(DType::kF32);
  std::vector<std::pair<std::string, std::string>> rows = {
      {"model", model.config.name},
      {"layers", std::to_string(plan.num_layers()) + " (" +
                     std::to_string(plan.CountOf(LayerKind::kLocal)) + " local, " +
                     std::to_string(plan.CountOf(LayerKind::kGlobal)) + " global)"},
      {"weights", model.weights->description()},
      {"weight_bytes", std::to_string(WeightBytes(config, model))},
      {"kv_cache_bytes", std::to_string(config.kv_cache_bytes)},
      {"mla_shadow_bytes", std::to_string(config.mla_shadow_bytes)},
  };
  CacheQuestion question;
  question.context = plan.max_seq_len;
  question.cache_dtype = cache;
  question.max_rewind = config.max_rewind;
  if (const absl::StatusOr<CachePlan> session = PlanCache(model.config, question); session.ok()) {
    rows.emplace_back("session_bytes_at_max_seq_len", std::to_string(session->session_page_bytes));
    rows.emplace_back("sessions_at_max_seq_len",
                      std::to_string(config.kv_cache_bytes / session->session_page_bytes));
  }
  return rows;
}

absl::StatusOr<std::unique_ptr<Engine>> MakeEngine(
    const Config& config, const OpenedModel& model, std::unique_ptr<kernels::Backend> backend,
    const Clock& clock, std::function<void(const BatchReport&)> on_batch) {
  return Engine::Create(model.config, model.weights.get(), std::move(backend),
                        MakeEngineOptions(config), clock, std::move(on_batch));
}

absl::StatusOr<v1::ModelInfo> MakeModelInfo(const Config& config, const OpenedModel& model,
                                            Engine& engine, const std::string& version) {
  absl::StatusOr<std::string> fingerprint = Fingerprint(model.plan, *model.weights);
  if (!fingerprint.ok()) {
    return fingerprint.status();
  }
  const ModelConfig& c = model.config;
  const DType cache = engine.options().cache_dtype;
  v1::ModelInfo info;
  info.set_name(c.name);
  info.set_fingerprint(*std::move(fingerprint));
  info.set_d_model(static_cast<int32_t>(c.d_model));
  info.set_num_heads_q(static_cast<int32_t>(c.n_heads_q));
  info.set_num_heads_kv(static_cast<int32_t>(c.n_heads_kv));
  info.set_d_head(static_cast<int32_t>(c.d_head));
  info.set_d_head_rope(static_cast<int32_t>(c.d_head_rope));
  info.set_d_kv_compressed(static_cast<int32_t>(c.d_kv_compressed));
  info.set_d_q_compressed(static_cast<int32_t>(c.d_q_compressed));
  info.set_local_window(static_cast<int32_t>(c.local_window));
  info.set_max_seq_len(c.max_seq_len);
  for (LayerKind kind : model.plan.layers) {
    info.add_layers(kind == LayerKind::kLocal ? v1::LAYER_KIND_LOCAL_GQA
                                              : v1::LAYER_KIND_GLOBAL_MLA);
  }
  info.set_weight_dtype(WireDtype(HeldWeightDtype(config, model)));
  info.set_cache_dtype(WireDtype(cache));
  info.set_page_tokens(static_cast<int32_t>(kernels::kPageTokens));
  info.set_global_bytes_per_token(model.plan.TokenBytes(LayerKind::kGlobal, cache));
  info.set_local_bytes_per_token(model.plan.TokenBytes(LayerKind::kLocal, cache));
  info.set_max_rewind(static_cast<int32_t>(config.max_rewind));
  info.set_max_message_bytes(config.max_message_bytes);
  info.set_max_batch_rows(static_cast<int32_t>(config.max_batch_rows));
  info.set_device(engine.backend().Name());
  info.set_version(version);
  info.set_weights(model.weights->description());
  info.set_rope_base(c.rope_base);
  info.set_rope_scaling(c.rope_scaling);
  info.set_rope_attn_factor(c.rope_attn_factor);
  for (v1::Dtype dtype : {v1::DTYPE_F32, v1::DTYPE_BF16, v1::DTYPE_F16}) {
    info.add_hidden_dtypes(dtype);
  }
  info.set_kv_cache_capacity_bytes(engine.pool().stats().capacity_bytes);
  return info;
}

}  // namespace attnd::server
