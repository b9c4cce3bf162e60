// The demo's answers against a float64 reference.
#include "client/attnctl/demo_check.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include "client/attnctl/demo_rows.h"
#include "core/layer_plan.h"
#include "core/rope.h"
#include "core/weights.h"
#include "kernels/convert.h"
#include "kernels/reference/layers.h"

namespace attnd::attnctl {
namespace {

constexpr double kTolerance = 1e-5;
constexpr double kHalfTolerance = 1e-2;  // weights or cache of two bytes
constexpr double kInt8Tolerance = 2e-2;  // a cache of one byte
constexpr double kFp8Tolerance = 8e-2;   // three bits of mantissa

absl::StatusOr<kernels::ReferenceMatrix> Load(WeightSource* source, const TensorSpec& spec) {
  const absl::StatusOr<TensorView> view = source->Tensor(spec);
  if (!view.ok()) {
    return view.status();
  }
  std::vector<float> values(static_cast<size_t>(spec.out * spec.in));
  kernels::ToFloat(view->dtype, view->data, spec.out * spec.in, values.data());
  return kernels::ReferenceMatrix(values.begin(), values.end());
}

// The layer's tensors in the order of LayerTensors().
absl::StatusOr<std::vector<kernels::ReferenceMatrix>> LoadAll(const LayerPlan& plan, int64_t layer,
                                                              WeightSource* source) {
  std::vector<kernels::ReferenceMatrix> tensors;
  for (const TensorSpec& spec : LayerTensors(plan, layer)) {
    absl::StatusOr<kernels::ReferenceMatrix> tensor = Load(source, spec);
    if (!tensor.ok()) {
      return tensor.status();
    }
    tensors.push_back(*std::move(tensor));
  }
  return tensors;
}

std::vector<double> Forward(const LayerPlan& plan, LayerKind kind,
                            std::vector<kernels::ReferenceMatrix> w, const std::vector<double>& x,
                            int64_t rows, const std::vector<int64_t>& wanted) {
  if (kind == LayerKind::kLocal) {
    return kernels::ReferenceForward(
        {plan.d_model, plan.local.shape, plan.local.window, plan.local.scale,
         RopeFrequencies(plan.local.rope), std::move(w[0]), std::move(w[1]), std::move(w[2]),
         std::move(w[3])},
        x, rows, 0, wanted);
  }
  kernels::ReferenceGlobalLayer layer;
  layer.d_model = plan.d_model;
  layer.d_query_latent = plan.global.d_query_latent;
  layer.shape = plan.global.shape;
  layer.scale = plan.global.scale;
  layer.theta = RopeFrequencies(plan.global.rope);
  layer.w_dkv = std::move(w[0]);
  layer.w_uk = std::move(w[1]);
  layer.w_uv = std::move(w[2]);
  layer.w_dq = std::move(w[3]);
  layer.w_uq = std::move(w[4]);
  layer.w_qr = std::move(w[5]);
  layer.w_kr = std::move(w[6]);
  layer.w_o = std::move(w[7]);
  return kernels::ReferenceForward(layer, x, rows, 0, wanted);
}

}  // namespace

bool DemoCheck::passed() const {
  return !layers.empty() && std::all_of(layers.begin(), layers.end(),
                                        [](const LayerCheck& layer) { return layer.passed; });
}

double DemoCheck::worst() const {
  double worst = 0;
  for (const LayerCheck& layer : layers) {
    worst = std::max(worst, layer.error);
  }
  return worst;
}

absl::StatusOr<ModelConfig> ConfigOf(const v1::ModelInfo& model) {
  ModelConfig config;
  config.name = model.name();
  config.d_model = model.d_model();
  config.n_layers = model.layers_size();
  config.n_heads_q = model.num_heads_q();
  config.n_heads_kv = model.num_heads_kv();
  config.d_head = model.d_head();
  config.d_kv_compressed = model.d_kv_compressed();
  config.d_q_compressed = model.d_q_compressed();
  config.d_head_rope = model.d_head_rope();
  config.max_seq_len = model.max_seq_len();
  config.rope_base = model.rope_base();
  config.rope_scaling = model.rope_scaling();
  config.rope_attn_factor = model.rope_attn_factor();
  config.local_window = model.local_window();
  const auto first =
      std::find(model.layers().begin(), model.layers().end(), v1::LAYER_KIND_GLOBAL_MLA);
  config.global_layer_freq = first - model.layers().begin() + 1;
  if (absl::Status status = ValidateModelConfig(config, "the server's model"); !status.ok()) {
    return status;
  }
  const LayerPlan plan = MakeLayerPlan(config);
  for (int64_t i = 0; i < plan.num_layers(); ++i) {
    const bool global = model.layers(static_cast<int>(i)) == v1::LAYER_KIND_GLOBAL_MLA;
    if (global != (plan.layers[static_cast<size_t>(i)] == LayerKind::kGlobal)) {
      return absl::UnimplementedError("the server's layers follow no global_layer_freq");
    }
  }
  return config;
}

bool CanCheck(const v1::ModelInfo& model) { return model.weights().rfind("random:", 0) == 0; }

LayerCheck Compare(const std::vector<float>& answer, const std::vector<double>& reference,
                   int64_t width, double tolerance) {
  LayerCheck check;
  check.rows = static_cast<int64_t>(reference.size()) / width;
  if (answer.size() != reference.size() || reference.empty()) {
    check.error = INFINITY;
    return check;
  }
  double difference = 0, norm = 0, worst = 0, largest = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double delta = answer[i] - reference[i];
    difference += delta * delta;
    norm += reference[i] * reference[i];
    worst = std::isnan(delta) ? INFINITY : std::max(worst, std::abs(delta));
    largest = std::max(largest, std::abs(reference[i]));
  }
  check.error = std::sqrt(difference / norm);
  check.passed = check.error <= tolerance && worst <= 100 * tolerance * largest;
  return check;
}

absl::StatusOr<DemoCheck> CheckDemo(const v1::ModelInfo& model, const DemoRun& run, bool progress) {
  const absl::StatusOr<ModelConfig> config = ConfigOf(model);
  if (!config.ok()) {
    return config.status();
  }
  const LayerPlan plan = MakeLayerPlan(*config);
  const absl::StatusOr<std::unique_ptr<WeightSource>> source = OpenWeights(model.weights(), plan);
  if (!source.ok()) {
    return source.status();
  }
  const bool exact = model.weight_dtype() == v1::DTYPE_F32 && model.cache_dtype() == v1::DTYPE_F32;
  DemoCheck check;
  check.tolerance = model.cache_dtype() == v1::DTYPE_INT8      ? kInt8Tolerance
                    : model.cache_dtype() == v1::DTYPE_F8_E4M3 ? kFp8Tolerance
                    : exact                                    ? kTolerance
                                                               : kHalfTolerance;
  for (int64_t layer = 0; layer < plan.num_layers(); ++layer) {
    if (progress) {
      std::fprintf(stderr, "\rchecking layer %lld of %lld", static_cast<long long>(layer + 1),
                   static_cast<long long>(plan.num_layers()));
    }
    absl::StatusOr<std::vector<kernels::ReferenceMatrix>> weights =
        LoadAll(plan, layer, source->get());
    if (!weights.ok()) {
      return weights.status();
    }
    const std::vector<float> rows = DemoRows(layer, 0, run.shape.rows(), plan.d_model);
    const std::vector<double> reference =
        Forward(plan, plan.layers[static_cast<size_t>(layer)], *std::move(weights),
                {rows.begin(), rows.end()}, run.shape.rows(), run.shape.sampled);
    check.layers.push_back(
        Compare(run.answers[static_cast<size_t>(layer)], reference, plan.d_model, check.tolerance));
    (*source)->Release();
  }
  if (progress) {
    std::fputc('\n', stderr);
  }
  return check;
}

}  // namespace attnd::attnctl
