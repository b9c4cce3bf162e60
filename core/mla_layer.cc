#include "core/mla_layer.h"

#include <algorithm>
#include <vector>

#include "core/project.h"

namespace attnd {
namespace {

// The part of a batch's attention that concerns rows [begin, end), renumbered from 0. A sequence
// may be cut: its rows do not depend on each other. `sequences` holds the result's sequences.
kernels::AttentionBatch SliceRows(const kernels::AttentionBatch& batch, int64_t begin, int64_t end,
                                  std::vector<kernels::AttentionSequence>* sequences) {
  sequences->clear();
  for (int64_t i = 0; i < batch.num_sequences; ++i) {
    kernels::AttentionSequence sequence = batch.sequences[i];
    const int64_t from = std::max(begin, sequence.row_begin);
    const int64_t to = std::min(end, sequence.row_begin + sequence.rows);
    if (from < to) {
      sequence.row_begin = from - begin;
      sequence.rows = to - from;
      sequences->push_back(sequence);
    }
  }
  kernels::AttentionBatch slice = batch;
  slice.sequences = sequences->data();
  slice.num_sequences = static_cast<int64_t>(sequences->size());
  slice.lo = batch.lo + begin;
  slice.hi = batch.hi + begin;
  return slice;
}

// Projects groups of `inner` heads: a weight per KV head.
void ProjectHeads(const Packed& weight, const float* x, int64_t in, float* y, int64_t out,
                  int64_t rows, const kernels::GlobalShape& shape, kernels::Backend* backend) {
  kernels::ProjectParams params;
  params.weight = weight.get();
  params.rows = rows;
  params.inner = shape.group();
  params.x = x;
  params.x_row = shape.heads_q * in;
  params.x_inner = in;
  params.y = y;
  params.y_row = shape.heads_q * out;
  params.y_inner = out;
  backend->Project(params);
}

void AttendAbsorbed(const MlaWeights& weights, const LayerBatch& batch, const MlaBuffers& buffers,
                    const kernels::GlobalShape& s, kernels::Backend* backend,
                    std::vector<kernels::AttentionSequence>* sequences) {
  for (int64_t begin = batch.shadow_end; begin < batch.absorbed_end; begin += kAbsorbedRows) {
    const int64_t end = std::min(batch.absorbed_end, begin + kAbsorbedRows);
    const int64_t rows = end - begin;
    const int64_t at = begin * s.heads_q;
    ProjectHeads(weights.absorb_key, buffers.query + at * s.d_head, s.d_head,
                 buffers.absorbed_query, s.d_latent, rows, s, backend);
    backend->LatentAttention({s, SliceRows(batch.attention, begin, end, sequences),
                              buffers.absorbed_query, buffers.rope_query + at * s.d_rope,
                              buffers.attended_latent});
    ProjectHeads(weights.expand_value, buffers.attended_latent, s.d_latent,
                 buffers.attended + at * s.d_head, s.d_head, rows, s, backend);
  }
}

void AttendShadows(const LayerBatch& batch, const MlaBuffers& buffers,
                   const kernels::GlobalShape& s, kernels::Backend* backend,
                   std::vector<kernels::AttentionSequence>* sequences) {
  if (batch.shadow_end == 0) {
    return;
  }
  kernels::ShadowAttentionParams params;
  params.shape = kernels::ShadowOf(s);
  params.batch = SliceRows(batch.attention, 0, batch.shadow_end, sequences);
  params.batch.pool = batch.fill.shadow;
  params.batch.dtype = DType::kF32;
  params.query = buffers.query;
  params.rope_query = buffers.rope_query;
  params.output = buffers.attended;
  backend->ShadowAttention(params);
}

}  // namespace

void CountBuffers(const GlobalSpec& spec, int64_t max_rows, Workspace* workspace,
                  MlaBuffers* buffers) {
  const kernels::GlobalShape& s = spec.shape;
  const int64_t absorbed = std::min(max_rows, kAbsorbedRows) * s.heads_q * s.d_latent;
  workspace->Add("latent", max_rows * s.d_latent, &buffers->latent);
  workspace->Add("rope key", max_rows * s.heads_kv * s.d_rope, &buffers->rope_key);
  workspace->Add("query latent", max_rows * spec.d_query_latent, &buffers->query_latent);
  workspace->Add("global query", max_rows * s.heads_q * s.d_head, &buffers->query);
  workspace->Add("rope query", max_rows * s.heads_q * s.d_rope, &buffers->rope_query);
  workspace->Add("absorbed query", absorbed, &buffers->absorbed_query);
  workspace->Add("attended latent", absorbed, &buffers->attended_latent);
  workspace->Add("global attended", max_rows * s.heads_q * s.d_head, &buffers->attended);
}

void RunMlaLayer(const GlobalSpec& spec, int64_t d_model, const MlaWeights& weights,
                 const LayerBatch& batch, const MlaBuffers& buffers, kernels::Backend* backend) {
  const kernels::GlobalShape& s = spec.shape;
  const int64_t query_width = s.heads_q * s.d_head;
  const int64_t half = s.d_rope / 2;

  if (batch.append_rows > 0) {
    const int64_t rows = batch.append_rows;
    Project(weights.latent, batch.append_x, d_model, buffers.latent, s.d_latent, rows, backend);
    Project(weights.rope_key, batch.append_x, d_model, buffers.rope_key, s.heads_kv * s.d_rope,
            rows, backend);
    backend->Rope({buffers.rope_key, batch.append_cos, batch.append_sin, rows, s.heads_kv, half});
    backend->AppendGlobal({s, batch.target, buffers.latent, buffers.rope_key});
  }
  if (batch.fill.rows > 0) {
    kernels::FillShadowParams fill = batch.fill;
    fill.shape = s;
    fill.expand_key = weights.expand_key.get();
    fill.expand_value = weights.expand_value.get();
    backend->FillShadow(fill);
  }
  if (batch.query_rows == 0) {
    return;
  }
  const int64_t rows = batch.query_rows;
  Project(weights.query_latent, batch.query_x, d_model, buffers.query_latent, spec.d_query_latent,
          rows, backend);
  Project(weights.query, buffers.query_latent, spec.d_query_latent, buffers.query, query_width,
          rows, backend);
  Project(weights.rope_query, batch.query_x, d_model, buffers.rope_query, s.heads_q * s.d_rope,
          rows, backend);
  backend->Rope({buffers.rope_query, batch.query_cos, batch.query_sin, rows, s.heads_q, half});

  std::vector<kernels::AttentionSequence> sequences;
  AttendShadows(batch, buffers, s, backend, &sequences);
  AttendAbsorbed(weights, batch, buffers, s, backend, &sequences);
  if (const int64_t at = batch.absorbed_end; at < rows) {
    kernels::ExpandedAttentionParams expanded;
    expanded.shape = s;
    expanded.batch = SliceRows(batch.attention, at, rows, &sequences);
    expanded.expand_key = weights.expand_key.get();
    expanded.expand_value = weights.expand_value.get();
    expanded.query = buffers.query + at * query_width;
    expanded.rope_query = buffers.rope_query + at * s.heads_q * s.d_rope;
    expanded.output = buffers.attended + at * query_width;
    backend->ExpandedAttention(expanded);
  }
  Project(weights.output, buffers.attended, query_width, batch.output, d_model, rows, backend);
}

}  // namespace attnd
