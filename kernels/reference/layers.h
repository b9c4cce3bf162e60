// Whole attention layers in float64, as the formulas read: what every faster form is held
// against. Rows are at positions 0 .. rows - 1 of one session.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/params.h"

namespace attnd::kernels {

// Weights are [out][in], row-major, used as y = x * Wᵀ.
using ReferenceMatrix = std::vector<double>;

// Grouped-query attention with a sliding window. A = heads_q * d_head, B = heads_kv * d_head.
struct ReferenceLocalLayer {
  int64_t d_model = 0;
  LocalShape shape;
  int64_t window = 0;         // keys that a row sees, itself included; >= 1
  double scale = 0;           // of the scores
  std::vector<double> theta;  // [d_head / 2] radians per position
  ReferenceMatrix w_q;        // [A][d_model]
  ReferenceMatrix w_k;        // [B][d_model]
  ReferenceMatrix w_v;        // [B][d_model]
  ReferenceMatrix w_o;        // [d_model][A]
};

// Multi-head latent attention, a rope key per KV head. R = heads * d_rope.
struct ReferenceGlobalLayer {
  int64_t d_model = 0;
  int64_t d_query_latent = 0;
  GlobalShape shape;
  double scale = 0;
  std::vector<double> theta;  // [d_rope / 2]
  ReferenceMatrix w_dkv;      // [d_latent][d_model]
  ReferenceMatrix w_uk;       // [B][d_latent]
  ReferenceMatrix w_uv;       // [B][d_latent]
  ReferenceMatrix w_dq;       // [d_query_latent][d_model]
  ReferenceMatrix w_uq;       // [A][d_query_latent]
  ReferenceMatrix w_kr;       // [R of heads_kv][d_model]
  ReferenceMatrix w_qr;       // [R of heads_q][d_model]
  ReferenceMatrix w_o;        // [d_model][A]
};

// The outputs [wanted][d_model] of the rows listed in `wanted` (ascending or not), given
// x [rows][d_model] and a bidirectional prefix of `prefix` rows, which lies within `rows` unless
// no wanted row lies in it.
std::vector<double> ReferenceForward(const ReferenceLocalLayer& layer, const std::vector<double>& x,
                                     int64_t rows, int64_t prefix,
                                     const std::vector<int64_t>& wanted);
std::vector<double> ReferenceForward(const ReferenceGlobalLayer& layer,
                                     const std::vector<double>& x, int64_t rows, int64_t prefix,
                                     const std::vector<int64_t>& wanted);

// All rows: 0 .. rows - 1.
std::vector<int64_t> AllRows(int64_t rows);

}  // namespace attnd::kernels
