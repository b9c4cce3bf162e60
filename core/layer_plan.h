// A model as a list of layers, each described by data: the layer code reads it, and there is no
// class per model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/model_config.h"
#include "kernels/cache_layout.h"
#include "kernels/params.h"

namespace attnd {

enum class LayerKind : uint8_t { kLocal, kGlobal };  // sliding-window GQA, MLA

constexpr const char* LayerKindName(LayerKind kind) {
  return kind == LayerKind::kLocal ? "local" : "global";
}

struct RopeSpec {
  int64_t width = 0;  // rotated width D of a head, even
  double base = 0;
  double scaling = 1;  // rho of APEX-1's YaRN, 1 = none
};

// What every layer of one kind has in common.
struct LocalSpec {
  kernels::LocalShape shape;
  int64_t window = 0;
  RopeSpec rope;
  double scale = 0;  // of the scores
};
struct GlobalSpec {
  kernels::GlobalShape shape;
  int64_t d_query_latent = 0;
  RopeSpec rope;
  double scale = 0;
};

struct LayerPlan {
  int64_t d_model = 0;
  int64_t max_seq_len = 0;
  std::vector<LayerKind> layers;
  LocalSpec local;
  GlobalSpec global;

  int64_t num_layers() const { return static_cast<int64_t>(layers.size()); }
  int64_t CountOf(LayerKind kind) const;
  // Bytes cached per token of a layer.
  int64_t TokenBytes(LayerKind kind, DType dtype) const {
    return kind == LayerKind::kLocal ? kernels::TokenBytes(local.shape, dtype)
                                     : kernels::TokenBytes(global.shape, dtype);
  }
};

// `config` is valid.
LayerPlan MakeLayerPlan(const ModelConfig& config);

// A weight tensor that a layer needs.
struct TensorSpec {
  std::string name;  // "blocks.5.attn.W_UK.weight"
  int64_t out = 0;
  int64_t in = 0;
};

// The tensors of layer `layer`: W_Q W_K W_V W_O, or W_DKV W_UK W_UV W_DQ W_UQ W_QR W_KR W_O.
std::vector<TensorSpec> LayerTensors(const LayerPlan& plan, int64_t layer);

}  // namespace attnd
