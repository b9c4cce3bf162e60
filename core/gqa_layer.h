// A local layer: grouped-query attention over a sliding window.
#pragma once

#include "core/layer_batch.h"
#include "core/layer_plan.h"
#include "core/layer_weights.h"
#include "core/workspace.h"
#include "kernels/backend.h"

namespace attnd {

struct GqaBuffers {
  float* query = nullptr;     // [rows][heads_q][d_head]
  float* key = nullptr;       // [rows][heads_kv][d_head]
  float* value = nullptr;     // [rows][heads_kv][d_head]
  float* attended = nullptr;  // [rows][heads_q][d_head]
};
void CountBuffers(const LocalSpec& spec, int64_t max_rows, Workspace* workspace,
                  GqaBuffers* buffers);

// Appends and answers the batch's rows.
void RunGqaLayer(const LocalSpec& spec, int64_t d_model, const GqaWeights& weights,
                 const LayerBatch& batch, const GqaBuffers& buffers, kernels::Backend* backend);

}  // namespace attnd
