// What caches take: the formulas' bytes for a context and a number of sessions, beside what the
// server's pages round them to, and the same for plain multi-head and grouped-query attention.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/model_config.h"
#include "kernels/dtype.h"

namespace attnd {

struct CacheQuestion {
  int64_t context = 0;   // tokens per session, 1 to 2^24
  int64_t sessions = 1;  // 1 to 2^30
  DType cache_dtype = DType::kBF16;
  int64_t max_rewind = 64;  // tokens that a local layer keeps beyond its window
};

struct CachePlan {
  int64_t local_layers = 0;
  int64_t global_layers = 0;

  // One layer, one token.
  int64_t mha_token_bytes = 0;
  int64_t gqa_token_bytes = 0;
  int64_t mla_token_bytes = 0;
  // All layers, one token (the window not counted): what a session grows by before the window is
  // full, and once it is (global layers alone).
  int64_t token_bytes = 0;
  int64_t token_bytes_past_window = 0;

  // One session of the context's length: the model as it is, each kind's share by the formulas
  // (local layers min(context, W) tokens), and if all layers cached in full as MHA, GQA or MLA do.
  int64_t session_bytes = 0;
  int64_t session_local_bytes = 0;
  int64_t session_global_bytes = 0;
  int64_t session_mha_bytes = 0;
  int64_t session_gqa_bytes = 0;
  int64_t session_mla_bytes = 0;
  // What the server takes for it between steps: pages of 64 tokens, and on local layers at most
  // those of W + max_rewind tokens and one.
  int64_t session_page_bytes = 0;

  // All sessions.
  int64_t total_bytes = 0;
  int64_t total_page_bytes = 0;

  // context / min(context, W): how many times fewer keys a local row sees.
  double window_saving = 1;

  // FLOP of one token decoded at the end of the context, all layers.
  double decode_flop = 0;
};

// `config` is valid. INVALID_ARGUMENT names the part of the question that is out of range, or the
// total when it does not fit in 63 bits.
absl::StatusOr<CachePlan> PlanCache(const ModelConfig& config, const CacheQuestion& question);

}  // namespace attnd
