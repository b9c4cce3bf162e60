// Every figure that `attnctl plan` prints, from the planner's formulas.
#pragma once

#include <cstdint>
#include <string>

#include "core/layer_plan.h"
#include "core/model_config.h"
#include "kernels/dtype.h"

namespace attnd::attnctl {

// One kind of attention in a layer of this model's shape.
struct KindFigures {
  int64_t parameters = 0;      // of a layer
  int64_t cache_elements = 0;  // per token and layer
  double token_bytes = 0;      // the same in bytes
  double layer_bytes = 0;      // a layer's cache of the whole context, no window
};

struct PlanFigures {
  int64_t context = 0;
  int64_t sessions = 0;
  DType dtype = DType::kBF16;
  int64_t local_layers = 0;
  int64_t global_layers = 0;

  KindFigures mha;  // what the model would be without its two ideas
  KindFigures gqa;  // its local layers
  KindFigures mla;  // its global layers

  // The model itself.
  int64_t parameters = 0;
  int64_t window_keys = 0;      // min(context, window): keys that a local row sees
  double token_bytes = 0;       // cache of one token in all layers, while the window grows
  double late_token_bytes = 0;  // beyond the window: global layers alone grow
  double local_bytes = 0;       // of one session at the context, all local layers
  double global_bytes = 0;
  double mha_session_bytes = 0;

  // FLOP of one decoded token whose history is the context.
  double local_projections = 0;  // of a layer
  double local_attention = 0;
  double global_projections = 0;
  double global_attention = 0;
  double token_flop = 0;  // all layers

  double session_bytes() const { return local_bytes + global_bytes; }
};

PlanFigures ComputePlan(const ModelConfig& config, int64_t context, int64_t sessions, DType dtype);

}  // namespace attnd::attnctl
