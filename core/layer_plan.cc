// From a configuration to layers as data.
#include "core/layer_plan.h"

#include <algorithm>
#include <cmath>

#include "kernels/check.h"

namespace attnd {
namespace {

// The temperature of YaRN, which the published model computes and never applies: 1 unless
// rope_attn_factor asks for it.
double ScoreFactor(const ModelConfig& config) {
  return config.rope_attn_factor ? 0.1 * std::log(config.rope_scaling) + 1.0 : 1.0;
}

LocalSpec MakeLocalSpec(const ModelConfig& config) {
  LocalSpec spec;
  spec.shape.heads_q = config.n_heads_q;
  spec.shape.heads_kv = config.n_heads_kv;
  spec.shape.d_head = config.d_head;
  spec.window = config.local_window;
  spec.rope = {config.d_head, config.rope_base, config.rope_scaling};
  spec.scale = ScoreFactor(config) / std::sqrt(static_cast<double>(config.d_head));
  return spec;
}

GlobalSpec MakeGlobalSpec(const ModelConfig& config) {
  GlobalSpec spec;
  spec.shape.heads_q = config.n_heads_q;
  spec.shape.heads_kv = config.n_heads_kv;
  spec.shape.d_head = config.d_head;
  spec.shape.d_rope = config.d_head_rope;
  spec.shape.d_latent = config.d_kv_compressed;
  spec.d_query_latent = config.d_q_compressed;
  spec.rope = {config.d_head_rope, config.rope_base, config.rope_scaling};
  spec.scale =
      ScoreFactor(config) / std::sqrt(static_cast<double>(config.d_head + config.d_head_rope));
  return spec;
}

}  // namespace

int64_t LayerPlan::CountOf(LayerKind kind) const {
  return std::count(layers.begin(), layers.end(), kind);
}

LayerPlan MakeLayerPlan(const ModelConfig& config) {
  LayerPlan plan;
  plan.d_model = config.d_model;
  plan.max_seq_len = config.max_seq_len;
  const int64_t every = config.global_layer_freq;
  for (int64_t layer = 0; layer < config.n_layers; ++layer) {
    plan.layers.push_back(layer % every == every - 1 ? LayerKind::kGlobal : LayerKind::kLocal);
  }
  plan.local = MakeLocalSpec(config);
  plan.global = MakeGlobalSpec(config);
  return plan;
}

std::vector<TensorSpec> LayerTensors(const LayerPlan& plan, int64_t layer) {
  Check(layer >= 0 && layer < plan.num_layers(), "a layer of the plan");
  const std::string prefix = "blocks." + std::to_string(layer) + ".attn.";
  const auto tensor = [&](const char* name, int64_t out, int64_t in) {
    return TensorSpec{prefix + name + ".weight", out, in};
  };
  const int64_t d = plan.d_model;
  if (plan.layers[layer] == LayerKind::kLocal) {
    const kernels::LocalShape& s = plan.local.shape;
    return {tensor("W_Q", s.heads_q * s.d_head, d), tensor("W_K", s.heads_kv * s.d_head, d),
            tensor("W_V", s.heads_kv * s.d_head, d), tensor("W_O", d, s.heads_q * s.d_head)};
  }
  const kernels::GlobalShape& s = plan.global.shape;
  const int64_t d_q = plan.global.d_query_latent;
  return {tensor("W_DKV", s.d_latent, d),
          tensor("W_UK", s.heads_kv * s.d_head, s.d_latent),
          tensor("W_UV", s.heads_kv * s.d_head, s.d_latent),
          tensor("W_DQ", d_q, d),
          tensor("W_UQ", s.heads_q * s.d_head, d_q),
          tensor("W_QR", s.heads_q * s.d_rope, d),
          tensor("W_KR", s.heads_kv * s.d_rope, d),
          tensor("W_O", d, s.heads_q * s.d_head)};
}

}  // namespace attnd
