// The weights of one layer as the backend keeps them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/layer_plan.h"
#include "core/weights.h"
#include "kernels/backend.h"

namespace attnd {

using Packed = std::unique_ptr<kernels::PackedWeight>;

// Sliding-window GQA: W_Q, W_K, W_V, W_O.
struct GqaWeights {
  Packed query, key, value, output;
};

// MLA. W_UK is kept twice: to absorb it into the query, and to expand keys.
struct MlaWeights {
  Packed latent;        // W_DKV [d_latent, d]
  Packed rope_key;      // W_KR [heads_kv * d_rope, d]
  Packed query_latent;  // W_DQ [d_query_latent, d]
  Packed query;         // W_UQ [heads_q * d_head, d_query_latent]
  Packed rope_query;    // W_QR [heads_q * d_rope, d]
  Packed absorb_key;    // W_UK, a group per KV head: out d_latent, in d_head
  Packed expand_key;    // W_UK, a group per KV head: out d_head, in d_latent
  Packed expand_value;  // W_UV, likewise
  Packed output;        // W_O [d, heads_q * d_head]
};

// One of the two is filled.
struct LayerWeights {
  GqaWeights gqa;
  MlaWeights mla;
};

// Reads every tensor that the plan needs: INVALID_ARGUMENT with its name when a value is not
// finite, as stored or as `dtype`. What PackWeights() checks too.
absl::Status CheckWeights(const LayerPlan& plan, WeightSource* source, std::optional<DType> dtype);

// Loads and packs all layers. `dtype`: convert to it; nullopt keeps what the file has.
absl::StatusOr<std::vector<LayerWeights>> PackWeights(const LayerPlan& plan, WeightSource* source,
                                                      std::optional<DType> dtype,
                                                      kernels::Backend* backend);

}  // namespace attnd
