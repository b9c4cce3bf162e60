#include "core/step_plan.h"

#include <algorithm>

#include "core/int_math.h"
#include "core/planner.h"
#include "kernels/check.h"

namespace attnd {
namespace {

using kernels::kPageTokens;

// However low max_flop is, a chunk may cost what this many first rows do: the weights of a large
// layer, streamed for 8 rows at a time, and its history, expanded for each 8, cost a sixth of the
// throughput of a 512-row prefill.
constexpr int64_t kLeastRowsWorth = 48;

class Chunker {
 public:
  Chunker(const LayerPlan& plan, const LayerRules& rules, const ChunkLimits& limits)
      : plan_(plan),
        rules_(rules),
        max_rows_(limits.max_rows),
        max_flop_(std::max(limits.max_flop, ChunkFlop(plan, rules.kind, 0, kLeastRowsWorth))) {}

  // The end of a chunk that starts at row `begin` of rows up to `end`. `keys` bounds the keys
  // that the rows see; 0 when they see up to themselves.
  int64_t ChunkEnd(int64_t begin, int64_t end, int64_t keys) const {
    int64_t rows = std::min(end - begin, max_rows_);
    const auto flop = [&](int64_t n) {
      const int64_t position = keys > 0 ? std::max<int64_t>(0, keys - n) : begin;
      return ChunkFlop(plan_, rules_.kind, position, n);
    };
    while (rows > 1 && flop(rows) > max_flop_) {
      rows = (rows + 1) / 2;
    }
    return begin + rows;
  }

  // Tokens below are needed neither by the rows from `row` on nor after the step.
  int64_t KeepFrom(int64_t row) const {
    if (rules_.kind == LayerKind::kGlobal) {
      return 0;
    }
    return std::max<int64_t>(0, row - rules_.window - rules_.max_rewind);
  }

 private:
  const LayerPlan& plan_;
  const LayerRules& rules_;
  const int64_t max_rows_;
  const double max_flop_;
};

// Rows below P: their keys first; their answers when all keys of the prefix are there.
void PlanPrefix(const Chunker& chunker, const LayerRules& rules, const StepShape& step,
                StepPlan* plan) {
  const int64_t end = std::min(step.end(), rules.prefix);
  for (int64_t at = step.position; at < end;) {
    const int64_t next = chunker.ChunkEnd(at, end, 0);
    plan->chunks.push_back({at, next, next, next, 0});
    at = next;
  }
  if (!plan->completes_prefix) {
    return;
  }
  int64_t at = rules.prefix;
  if (step.output_rows == OutputRows::kAll) {
    at = 0;
  } else if (step.output_rows == OutputRows::kLast && step.end() == rules.prefix) {
    at = rules.prefix - 1;
  }
  while (at < rules.prefix) {
    const int64_t next = chunker.ChunkEnd(at, rules.prefix, rules.prefix);
    plan->chunks.push_back({step.position, step.position, at, next, 0});
    at = next;
  }
}

void PlanRest(const Chunker& chunker, const LayerRules& rules, const StepShape& step,
              StepPlan* plan) {
  for (int64_t at = std::max(step.position, rules.prefix); at < step.end();) {
    const int64_t next = chunker.ChunkEnd(at, step.end(), 0);
    Chunk chunk{at, next, at, next, chunker.KeepFrom(at)};
    if (step.output_rows == OutputRows::kLast) {
      chunk.query_begin = next == step.end() ? next - 1 : next;
    } else if (step.output_rows == OutputRows::kNone) {
      chunk.query_begin = next;
    }
    plan->chunks.push_back(chunk);
    at = next;
  }
}

// New pages at the peak: those that hold appended tokens and are not dropped yet.
int64_t PeakPages(const StepPlan& plan, const StepShape& step) {
  int64_t peak = 0;
  const int64_t old_end = CeilDiv(step.position, kPageTokens);
  int64_t dropped = 0;
  for (const Chunk& chunk : plan.chunks) {
    dropped = std::max(dropped, chunk.keep_from / kPageTokens);
    const int64_t begin = std::max(old_end, dropped);
    peak = std::max(peak, CeilDiv(chunk.append_end, kPageTokens) - begin);
  }
  return peak;
}

}  // namespace

int64_t AnsweredRows(const StepShape& step, int64_t prefix) {
  const bool completes = step.position < prefix && step.end() >= prefix;
  if (step.end() < prefix || step.output_rows == OutputRows::kNone) {
    return 0;
  }
  if (step.output_rows == OutputRows::kLast) {
    return 1;
  }
  return completes ? step.end() : step.rows;
}

StepPlan PlanStep(const LayerPlan& layer_plan, const LayerRules& rules, const StepShape& step,
                  const ChunkLimits& limits) {
  Check(step.rows > 0 && limits.max_rows > 0, "a step has rows");
  const Chunker chunker(layer_plan, rules, limits);
  StepPlan plan;
  plan.completes_prefix = step.position < rules.prefix && step.end() >= rules.prefix;
  plan.output_rows = AnsweredRows(step, rules.prefix);
  plan.output_position = plan.output_rows > 0 ? step.end() - plan.output_rows : step.position;
  if (step.position < rules.prefix) {
    PlanPrefix(chunker, rules, step, &plan);
  }
  PlanRest(chunker, rules, step, &plan);
  plan.main_pages = PeakPages(plan, step);
  if (step.end() < rules.prefix) {
    plan.held_pages = CeilDiv(step.end(), kHeldPageRows) - CeilDiv(step.position, kHeldPageRows);
  }
  return plan;
}

PerKind ReservedPages(const LayerPlan& plan, int64_t prefix, int64_t max_tokens, int64_t max_rewind,
                      int64_t chunk_rows) {
  const int64_t all = CeilDiv(max_tokens, kPageTokens);
  const int64_t held = CeilDiv(std::min(prefix, max_tokens), kHeldPageRows);
  const int64_t prefix_pages = CeilDiv(std::min(prefix, max_tokens), kPageTokens);
  const int64_t window = CeilDiv(plan.local.window + max_rewind, kPageTokens) + 1;
  const int64_t tail = std::max(prefix_pages, CeilDiv(plan.local.window, kPageTokens) + 1);
  const int64_t running =
      std::max(prefix_pages, CeilDiv(plan.local.window + max_rewind + chunk_rows, kPageTokens) + 1);
  PerKind pages{};
  const int64_t locals = plan.CountOf(LayerKind::kLocal);
  const int64_t globals = plan.CountOf(LayerKind::kGlobal);
  // Between steps, and beside it what the one running step adds: at most the layer once more
  // (a repetition keeps the old rows until it has succeeded) and the copy of a partial page.
  if (locals > 0) {
    pages[Index(PageKind::kLocal)] =
        locals * std::min(all, window + tail) + std::min(all, running + prefix_pages) + 1;
  }
  if (globals > 0) {
    pages[Index(PageKind::kGlobal)] = globals * all + all + 1;
  }
  if (held > 0) {
    pages[Index(PageKind::kHeld)] = (locals + globals) * held + held + 1;
  }
  return pages;
}

}  // namespace attnd
