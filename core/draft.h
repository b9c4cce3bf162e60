// A layer's next state while a step works on it: begun as a copy of what is there, with all
// pages that the step will need; grown chunk by chunk; finished, and then committed by whoever
// began it, or simply dropped.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/layer_cache.h"
#include "core/page_pool.h"
#include "core/step.h"
#include "core/step_plan.h"
#include "kernels/backend.h"

namespace attnd {

struct Draft {
  LayerCache cache;
  LayerRules rules;
  StepShape step;
  PageList spare, spare_held;  // taken and not yet used
  ShadowFill shadow_fill{};    // of the current chunk
};

struct PositionLimits {
  int64_t max_seq_len = 0;
  int64_t max_tokens = 0;  // of the session; 0: no cap
};

// OK when `part` may run on the layer now: POSITION_MISMATCH, REWIND_TOO_FAR, PREFIX_ANSWERED,
// PREFIX_INCOMPLETE (a Decode), PAST_MAX_SEQ_LEN, PAST_MAX_TOKENS.
absl::Status CheckPosition(const LayerCache& cache, const LayerRules& rules, StepKind kind,
                           const SequenceStep& part, const PositionLimits& limits);

// `cache` at the step's position, its pages shared with the original but for a partial page that
// the step would overwrite, which is copied; CACHE_FULL when the pages cannot be had.
absl::StatusOr<Draft> BeginDraft(LayerCache cache, const LayerRules& rules, const StepShape& step,
                                 const StepPlan& plan, Account* account, PagePool* pool,
                                 kernels::Backend* backend);

// Makes room for the rows that `chunk` appends, with pages whose tokens are no longer needed.
void GrowDraft(const Chunk& chunk, Draft* draft);

// The step is done: what lies too far back goes.
void FinishDraft(Draft* draft);

}  // namespace attnd
