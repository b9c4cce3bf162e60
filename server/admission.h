// Whether the server takes a request at all: ready, draining, and answers too large to send.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/dtype.h"

namespace attnd::server {

// Starting -> serving -> draining (not ready, everything still served) -> refusing.
class Admission {
 public:
  // OK, NOT_READY or DRAINING: for what makes new work, steps and sessions.
  absl::Status AdmitWork() const;
  // OK or NOT_READY: for what only looks or ends.
  absl::Status AdmitRead() const;

  // For probes and balancers.
  bool ready() const { return phase_.load() == Phase::kServing; }
  bool draining() const { return phase_.load() >= Phase::kDraining; }
  bool refusing() const { return phase_.load() == Phase::kRefusing; }

  // Each is a step forward; a call that would go back does nothing.
  void BeginServing() { Advance(Phase::kServing); }
  void BeginDraining() { Advance(Phase::kDraining); }
  void BeginRefusing() { Advance(Phase::kRefusing); }

 private:
  enum class Phase : uint8_t { kStarting, kServing, kDraining, kRefusing };
  void Advance(Phase to);

  std::atomic<Phase> phase_{Phase::kStarting};
};

// Bytes of an answer besides its tensor, from above: fixed fields, and per sequence a result
// whose error message is at most a few hundred bytes.
constexpr int64_t AnswerOverhead(int64_t sequences) { return 256 + 512 * sequences; }

// MESSAGE_TOO_LARGE when an answer of `rows` rows to `sequences` sequences would exceed the
// limit; known before anything is queued.
absl::Status CheckAnswerSize(int64_t rows, int64_t d_model, DType dtype, int64_t sequences,
                             int64_t max_message_bytes);

}  // namespace attnd::server
