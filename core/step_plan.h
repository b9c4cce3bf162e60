// How a step is cut into chunks, and what pages it needs: pure functions of the step and its
// layer, so that a step's course does not depend on what else the server does.
#pragma once

#include <cstdint>
#include <vector>

#include "core/layer_cache.h"
#include "core/layer_plan.h"

namespace attnd {

// Part of a step that runs within one batch. Positions are absolute; empty ranges are begin = end.
struct Chunk {
  int64_t append_begin = 0, append_end = 0;  // rows whose keys are written
  int64_t query_begin = 0, query_end = 0;    // rows that are answered
  int64_t keep_from = 0;  // keys below are no longer needed when the chunk starts

  int64_t rows() const {
    const int64_t appended = append_end - append_begin;
    const int64_t queried = query_end - query_begin;
    return appended > queried ? appended : queried;
  }
};

enum class OutputRows : uint8_t { kAll, kLast, kNone };

struct StepShape {
  int64_t position = 0;  // of the first row
  int64_t rows = 0;
  OutputRows output_rows = OutputRows::kAll;

  int64_t end() const { return position + rows; }
};

struct ChunkLimits {
  int64_t max_rows = 0;  // of one chunk
  double max_flop = 0;   // of one chunk, by the planner's estimate; 48 first rows may always run
};

struct StepPlan {
  std::vector<Chunk> chunks;
  bool completes_prefix = false;
  // The answered rows are [output_position, output_position + output_rows).
  int64_t output_position = 0;
  int64_t output_rows = 0;
  int64_t main_pages = 0;  // new pages at the step's peak, the copy of a shared last page apart
  int64_t held_pages = 0;
};

// A layer at `step.position`: what is there is its `length` tokens.
StepPlan PlanStep(const LayerPlan& plan, const LayerRules& rules, const StepShape& step,
                  const ChunkLimits& limits);

// Pages that a session of `max_tokens` can ever need, all layers, while one step at a time runs.
PerKind ReservedPages(const LayerPlan& plan, int64_t prefix, int64_t max_tokens, int64_t max_rewind,
                      int64_t chunk_rows);

// Rows that a step will answer, known before it is queued.
int64_t AnsweredRows(const StepShape& step, int64_t prefix);

}  // namespace attnd
