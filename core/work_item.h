// One session's part of a step, from acceptance to its end: what the scheduler queues and the
// executor runs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "core/clock.h"
#include "core/draft.h"
#include "core/step.h"
#include "core/step_plan.h"

namespace attnd {

// A step that the engine owns.
struct ActiveStep {
  std::unique_ptr<Step> step;
  int64_t unfinished = 0;  // parts
  MonotonicNs accepted = 0;
  bool started = false;
};

struct WorkItem {
  std::shared_ptr<ActiveStep> active;
  size_t sequence = 0;    // index into step->sequences
  int64_t first_row = 0;  // of this part in step->hidden
  StepPlan plan;          // empty for an operation
  size_t next_chunk = 0;
  uint64_t turn = 0;
  uint64_t order = 0;
  std::optional<Draft> draft;  // once it has begun
  bool finished = false;       // answered, or failed with the sequence's status

  Step& step() const { return *active->step; }
  SequenceStep& part() const { return active->step->sequences[sequence]; }
  Session& session() const { return *part().session; }
  bool is_operation() const { return step().kind == StepKind::kOperation; }
  const Chunk& chunk() const { return plan.chunks[next_chunk]; }
  // Chunks that were computed before are not answered: a failed part's rows are zero.
  void Fail(absl::Status status) {
    part().status = std::move(status);
    draft.reset();
    finished = true;
    if (step().kind == StepKind::kDecode && !step().output.empty()) {
      const int64_t width = static_cast<int64_t>(step().output.size()) / step().rows();
      std::fill_n(step().output.begin() + first_row * width, part().rows * width, 0.0F);
    }
  }
};

}  // namespace attnd
