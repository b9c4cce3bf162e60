// A global layer: multi-head latent attention with a decoupled rotary part.
#pragma once

#include "core/layer_batch.h"
#include "core/layer_plan.h"
#include "core/layer_weights.h"
#include "core/workspace.h"
#include "kernels/backend.h"

namespace attnd {

// Rows that are absorbed at a time: a row's query in latent space is heads_q * d_latent floats,
// 256 KiB on the largest published model, too much to keep for a whole batch.
inline constexpr int64_t kAbsorbedRows = 64;

struct MlaBuffers {
  float* latent = nullptr;           // [rows][d_latent]
  float* rope_key = nullptr;         // [rows][heads_kv][d_rope]
  float* query_latent = nullptr;     // [rows][d_query_latent]
  float* query = nullptr;            // [rows][heads_q][d_head]
  float* rope_query = nullptr;       // [rows][heads_q][d_rope]
  float* absorbed_query = nullptr;   // [kAbsorbedRows][heads_q][d_latent]
  float* attended_latent = nullptr;  // [kAbsorbedRows][heads_q][d_latent]
  float* attended = nullptr;         // [rows][heads_q][d_head]
};
void CountBuffers(const GlobalSpec& spec, int64_t max_rows, Workspace* workspace,
                  MlaBuffers* buffers);

// Appends and answers the batch's rows, those of a sequence in one form: over its shadow, absorbed,
// or expanded.
void RunMlaLayer(const GlobalSpec& spec, int64_t d_model, const MlaWeights& weights,
                 const LayerBatch& batch, const MlaBuffers& buffers, kernels::Backend* backend);

}  // namespace attnd
