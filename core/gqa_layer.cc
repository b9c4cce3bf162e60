#include "core/gqa_layer.h"

#include "core/project.h"

namespace attnd {

void CountBuffers(const LocalSpec& spec, int64_t max_rows, Workspace* workspace,
                  GqaBuffers* buffers) {
  const kernels::LocalShape& s = spec.shape;
  workspace->Add("local query", max_rows * s.heads_q * s.d_head, &buffers->query);
  workspace->Add("local key", max_rows * s.heads_kv * s.d_head, &buffers->key);
  workspace->Add("local value", max_rows * s.heads_kv * s.d_head, &buffers->value);
  workspace->Add("local attended", max_rows * s.heads_q * s.d_head, &buffers->attended);
}

void RunGqaLayer(const LocalSpec& spec, int64_t d_model, const GqaWeights& weights,
                 const LayerBatch& batch, const GqaBuffers& buffers, kernels::Backend* backend) {
  const kernels::LocalShape& s = spec.shape;
  const int64_t query_width = s.heads_q * s.d_head;
  const int64_t key_width = s.heads_kv * s.d_head;
  const int64_t half = s.d_head / 2;

  if (batch.append_rows > 0) {
    const int64_t rows = batch.append_rows;
    Project(weights.key, batch.append_x, d_model, buffers.key, key_width, rows, backend);
    Project(weights.value, batch.append_x, d_model, buffers.value, key_width, rows, backend);
    backend->Rope({buffers.key, batch.append_cos, batch.append_sin, rows, s.heads_kv, half});
    backend->AppendLocal({s, batch.target, buffers.key, buffers.value});
  }
  if (batch.query_rows > 0) {
    const int64_t rows = batch.query_rows;
    Project(weights.query, batch.query_x, d_model, buffers.query, query_width, rows, backend);
    backend->Rope({buffers.query, batch.query_cos, batch.query_sin, rows, s.heads_q, half});
    backend->LocalAttention({s, batch.attention, buffers.query, buffers.attended});
    Project(weights.output, buffers.attended, query_width, batch.output, d_model, rows, backend);
  }
}

}  // namespace attnd
