#include "core/layer_weights.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/check.h"
#include "kernels/convert.h"

namespace attnd {
namespace {

// A weight that is not finite makes every answer of its layer wrong: better told at the start.
absl::Status CheckFinite(const TensorSpec& spec, const TensorView& view,
                         const std::string& origin) {
  constexpr int64_t kBlock = 4096;
  float values[kBlock];
  const int64_t count = spec.out * spec.in;
  for (int64_t at = 0; at < count; at += kBlock) {
    const auto* data = static_cast<const uint8_t*>(view.data) + at * DTypeSize(view.dtype);
    if (!kernels::ToFloat(view.dtype, data, std::min(kBlock, count - at), values)) {
      return absl::InvalidArgumentError(origin + ": tensor " + spec.name +
                                        " has a NaN or an infinity; expected finite weights");
    }
  }
  return absl::OkStatus();
}

// A tensor, converted if asked for.
class Loaded {
 public:
  static absl::StatusOr<Loaded> Load(const TensorSpec& spec, std::optional<DType> dtype,
                                     WeightSource* source) {
    absl::StatusOr<TensorView> view = source->Tensor(spec);
    if (!view.ok()) {
      return view.status();
    }
    Loaded loaded;
    loaded.view_ = *view;
    if (absl::Status status = CheckFinite(spec, *view, source->description()); !status.ok()) {
      return status;
    }
    if (dtype.has_value() && *dtype != view->dtype) {
      if (absl::Status status = loaded.Convert(spec, *dtype, source->description()); !status.ok()) {
        return status;
      }
    }
    return loaded;
  }

  absl::StatusOr<Packed> Pack(int64_t groups, bool transposed, kernels::Backend* backend) const {
    kernels::WeightView weight;
    weight.data = converted_.empty() ? view_.data : converted_.data();
    weight.dtype = view_.dtype;
    weight.groups = groups;
    weight.out = transposed ? view_.in : view_.out / groups;
    weight.in = transposed ? view_.out / groups : view_.in;
    weight.transposed = transposed;
    return backend->Pack(weight);
  }

 private:
  absl::Status Convert(const TensorSpec& spec, DType dtype, const std::string& origin) {
    const int64_t count = spec.out * spec.in;
    std::vector<float> values(static_cast<size_t>(count));
    kernels::ToFloat(view_.dtype, view_.data, count, values.data());
    converted_.resize(static_cast<size_t>(count * DTypeSize(dtype)));
    if (!kernels::FromFloat(dtype, values.data(), count, converted_.data())) {
      return absl::InvalidArgumentError(origin + ": tensor " + spec.name +
                                        " has a value that is not finite as " + DTypeName(dtype) +
                                        " (--weight_dtype)");
    }
    view_.dtype = dtype;
    return absl::OkStatus();
  }

  TensorView view_;
  std::vector<uint8_t> converted_;
};

// Where a tensor of the layer goes; W_UK goes to two places.
struct Target {
  Packed* packed;
  int64_t groups = 1;
  bool transposed = false;
};

std::vector<Target> Targets(const LayerPlan& plan, const std::string& tensor,
                            LayerWeights* weights) {
  const int64_t heads_kv = plan.global.shape.heads_kv;
  GqaWeights& gqa = weights->gqa;
  MlaWeights& mla = weights->mla;
  const auto is = [&](const char* name) {
    return tensor.find("." + std::string(name) + ".weight") != std::string::npos;
  };
  if (is("W_Q")) return {{&gqa.query}};
  if (is("W_K")) return {{&gqa.key}};
  if (is("W_V")) return {{&gqa.value}};
  if (is("W_DKV")) return {{&mla.latent}};
  if (is("W_KR")) return {{&mla.rope_key}};
  if (is("W_DQ")) return {{&mla.query_latent}};
  if (is("W_UQ")) return {{&mla.query}};
  if (is("W_QR")) return {{&mla.rope_query}};
  if (is("W_UK")) return {{&mla.absorb_key, heads_kv, true}, {&mla.expand_key, heads_kv}};
  if (is("W_UV")) return {{&mla.expand_value, heads_kv}};
  Check(is("W_O"), "every tensor of a layer has a place");
  return {};
}

}  // namespace

absl::Status CheckWeights(const LayerPlan& plan, WeightSource* source, std::optional<DType> dtype) {
  for (int64_t layer = 0; layer < plan.num_layers(); ++layer) {
    for (const TensorSpec& spec : LayerTensors(plan, layer)) {
      if (absl::Status status = Loaded::Load(spec, dtype, source).status(); !status.ok()) {
        return status;
      }
    }
    source->Release();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<LayerWeights>> PackWeights(const LayerPlan& plan, WeightSource* source,
                                                      std::optional<DType> dtype,
                                                      kernels::Backend* backend) {
  std::vector<LayerWeights> layers(plan.layers.size());
  for (int64_t layer = 0; layer < plan.num_layers(); ++layer) {
    LayerWeights& weights = layers[static_cast<size_t>(layer)];
    const bool local = plan.layers[static_cast<size_t>(layer)] == LayerKind::kLocal;
    for (const TensorSpec& spec : LayerTensors(plan, layer)) {
      absl::StatusOr<Loaded> loaded = Loaded::Load(spec, dtype, source);
      if (!loaded.ok()) {
        return loaded.status();
      }
      std::vector<Target> targets = Targets(plan, spec.name, &weights);
      if (targets.empty()) {
        targets.push_back({local ? &weights.gqa.output : &weights.mla.output});
      }
      for (const Target& target : targets) {
        absl::StatusOr<Packed> packed = loaded->Pack(target.groups, target.transposed, backend);
        if (!packed.ok()) {
          return packed.status();
        }
        *target.packed = *std::move(packed);
      }
    }
    source->Release();
  }
  return layers;
}

}  // namespace attnd
