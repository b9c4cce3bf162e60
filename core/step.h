// A step: what one Prefill, Decode or operation on a session asks of the engine, and what it got.
// A step serves one layer (an operation: all layers), for one session or for many.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/clock.h"
#include "core/session.h"
#include "core/step_plan.h"

namespace attnd {

// kOperation: something done with a whole session when its turn comes: rewind, fork, export.
enum class StepKind : uint8_t { kPrefill, kDecode, kOperation };

// One session's part of a step.
struct SequenceStep {
  // Filled by the caller. A session that could not be found leaves `session` null and its
  // error in `status`: the part fails alone.
  std::shared_ptr<Session> session;
  absl::Status status;          // OK until it fails
  int64_t position = 0;         // absolute position of the first row
  int64_t rows = 0;             // >= 1; for an operation 0
  bool rewind = false;          // cut to `position` before appending
  int64_t expected_length = 0;  // > 0: see the wire contract

  // Filled by the engine.
  int64_t length = 0;  // the layer's length now, also after a failure where the session exists
};

struct StepTiming {
  int64_t queue_ns = 0;    // accepted until its first batch started
  int64_t compute_ns = 0;  // the execution of its batches
  int64_t batch_rows = 0;  // rows that shared the last batch, its own included
};

struct Step {
  StepKind kind = StepKind::kPrefill;
  int64_t layer = 0;
  OutputRows output_rows = OutputRows::kAll;
  std::vector<SequenceStep> sequences;  // a Prefill or an operation has one
  std::vector<float> hidden;            // [sum of rows][d_model]
  // Of an operation: called once on the engine's thread, with no step of the session running.
  std::function<absl::Status(const std::shared_ptr<Session>&)> operation;
  uint64_t connection = 0;  // steps of one connection share its turns
  MonotonicNs deadline = kNever;
  // Set from any thread; looked at before a step starts and between its chunks.
  std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);
  // Called exactly once, from the engine's thread or within EnqueueOrRun(), with no lock held;
  // must not block or throw.
  std::function<void(std::unique_ptr<Step>)> done;

  // Filled by the engine. Output of a Decode: [sum of rows][d_model], rows of a failed sequence
  // are zero. Of a Prefill: the answered rows, output_position the first of them.
  std::vector<float> output;
  int64_t output_position = 0;
  StepTiming timing;

  int64_t rows() const;  // of all sequences

  // The status of a step of one sequence, or of a Decode in which every sequence failed with
  // the same code and reason; OK otherwise.
  absl::Status Outcome() const;
};

}  // namespace attnd
