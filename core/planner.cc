// The formulas of parameters, cache and FLOP.
#include "core/planner.h"

#include <algorithm>

#include "kernels/check.h"

namespace attnd {
namespace {

double D(int64_t n) { return static_cast<double>(n); }

// Visible (row, key) pairs when rows position .. position + rows - 1 see everything before them.
double CausalPairs(int64_t position, int64_t rows) {
  return D(rows) * D(position) + D(rows) * D(rows + 1) / 2;
}

// Likewise when each sees at most `window` keys.
double WindowPairs(int64_t position, int64_t rows, int64_t window) {
  const int64_t growing = std::clamp<int64_t>(window - position, 0, rows);
  return CausalPairs(position, growing) + D(rows - growing) * D(window);
}

// The absorbed form reads latents only, and maps each row's queries and outputs once.
double AbsorbedFlop(const kernels::GlobalShape& s, int64_t rows, double pairs) {
  return 2 * D(s.heads_q) * pairs * D(2 * s.d_latent + s.d_rope) +
         4 * D(rows) * D(s.heads_q) * D(s.d_head) * D(s.d_latent);
}

// The decompressed form expands keys and values once per key, then attends at head width.
double ExpandedFlop(const kernels::GlobalShape& s, int64_t keys, double pairs) {
  return 4 * D(keys) * D(s.heads_kv) * D(s.d_head) * D(s.d_latent) +
         pairs * D(s.heads_q) * D(2 * (s.d_head + s.d_rope) + 2 * s.d_head);
}

// Multiplications by every weight but W_UK and W_UV, which belong to the forms above.
double GlobalProjectionFlop(const LayerPlan& plan, int64_t rows) {
  const kernels::GlobalShape& s = plan.global.shape;
  const double d = D(plan.d_model);
  const double d_q = D(plan.global.d_query_latent);
  const double query_width = D(s.heads_q * s.d_head);
  const double weights = d * D(s.d_latent) + d * d_q + d_q * query_width +
                         d * D(s.heads_q * s.d_rope) + d * D(s.heads_kv * s.d_rope) +
                         query_width * d;
  return 2 * D(rows) * weights;
}

double LocalProjectionFlop(const LayerPlan& plan, int64_t rows) {
  const kernels::LocalShape& s = plan.local.shape;
  return 2 * D(rows) * D(plan.d_model) * 2 * D((s.heads_q + s.heads_kv) * s.d_head);
}

}  // namespace

int64_t MhaParameters(const ModelConfig& c) { return 4 * c.d_model * c.n_heads_q * c.d_head; }

int64_t GqaParameters(const ModelConfig& c) {
  return 2 * c.d_model * c.n_heads_q * c.d_head + 2 * c.d_model * c.n_heads_kv * c.d_head;
}

int64_t MlaParameters(const ModelConfig& c) {
  return c.d_model * c.d_kv_compressed + 2 * c.d_kv_compressed * c.n_heads_kv * c.d_head +
         c.d_model * c.d_q_compressed + c.d_q_compressed * c.n_heads_q * c.d_head +
         c.d_model * c.n_heads_q * c.d_head_rope + c.d_model * c.n_heads_kv * c.d_head_rope +
         c.n_heads_q * c.d_head * c.d_model;
}

int64_t MhaCacheElements(const ModelConfig& c) { return 2 * c.n_heads_q * c.d_head; }

int64_t GqaCacheElements(const ModelConfig& c) { return 2 * c.n_heads_kv * c.d_head; }

int64_t MlaCacheElements(const ModelConfig& c) {
  return c.d_kv_compressed + c.n_heads_kv * c.d_head_rope;
}

int64_t MhaTokenBytes(const ModelConfig& c, DType cache_dtype) {
  return kernels::TokenBytes(kernels::LocalShape{c.n_heads_q, c.n_heads_q, c.d_head}, cache_dtype);
}

int64_t GqaTokenBytes(const ModelConfig& c, DType cache_dtype) {
  return kernels::TokenBytes(kernels::LocalShape{c.n_heads_q, c.n_heads_kv, c.d_head}, cache_dtype);
}

int64_t MlaTokenBytes(const ModelConfig& c, DType cache_dtype) {
  return kernels::TokenBytes(
      kernels::GlobalShape{c.n_heads_q, c.n_heads_kv, c.d_head, c.d_head_rope, c.d_kv_compressed},
      cache_dtype);
}

double LocalDecodeFlop(const ModelConfig& c, int64_t n) {
  return 2 * D(GqaParameters(c)) + 4 * D(c.n_heads_q * c.d_head) * D(std::min(n, c.local_window));
}

double GlobalDecodeFlop(const ModelConfig& c, int64_t n) {
  return 2 * D(MlaParameters(c)) +
         2 * D(c.n_heads_q) * D(n) * D(2 * c.d_kv_compressed + c.d_head_rope) +
         4 * D(c.n_heads_q * c.d_head) * D(c.d_kv_compressed);
}

double ChunkFlop(const LayerPlan& plan, LayerKind kind, int64_t position, int64_t rows) {
  Check(position >= 0 && rows >= 0, "positions and rows count from zero");
  if (kind == LayerKind::kLocal) {
    const kernels::LocalShape& s = plan.local.shape;
    return LocalProjectionFlop(plan, rows) +
           4 * D(s.heads_q * s.d_head) * WindowPairs(position, rows, plan.local.window);
  }
  const kernels::GlobalShape& s = plan.global.shape;
  const int64_t keys = position + rows;
  const double pairs = CausalPairs(position, rows);
  return GlobalProjectionFlop(plan, rows) +
         std::min(AbsorbedFlop(s, rows, pairs), ExpandedFlop(s, keys, pairs));
}

bool PreferAbsorbed(const kernels::GlobalShape& shape, int64_t rows, int64_t keys) {
  // Measured at 128/8 heads, 4096 keys, one thread: at 12 rows absorbed takes 136.9 ms and expanded
  // 132.0 with avx2, 131.5 and 134.7 with avx3; by FLOP alone they would change at 11 rows.
  constexpr double kExpandedCost = 1.08;
  const double pairs = D(rows) * D(keys);
  return AbsorbedFlop(shape, rows, pairs) <= kExpandedCost * ExpandedFlop(shape, keys, pairs);
}

}  // namespace attnd
