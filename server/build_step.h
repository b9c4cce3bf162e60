// From a request to a step of the engine: admission, validation, look-up, copy, in this order, so
// that a request that is refused has cost nothing before.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attnd/v1/attnd.pb.h"
#include "core/step.h"
#include "kernels/dtype.h"
#include "server/byte_budget.h"
#include "server/fast_parse.h"
#include "server/service_context.h"

namespace attnd::server {

struct BuiltStep {
  std::unique_ptr<Step> step;  // without `done`
  DType output_dtype = DType::kF32;
  ByteCharge charge;  // until the answer has left
};

// An answer larger than a message is refused, or sent in parts (a Prefill's on Steps).
enum class AnswerForm : uint8_t { kOneMessage, kParts };

// Restarts the idle time of a session that a refused call has named. (Those below do so
// themselves.)
void Touch(const ServiceContext& service, const Caller& caller, const std::string& id);

// `hidden` has the bytes of request.hidden.
absl::StatusOr<BuiltStep> BuildPrefill(const ServiceContext& service, const Caller& caller,
                                       const v1::PrefillRequest& request, const TensorBytes& hidden,
                                       AnswerForm form);
// Sequences that fail on their own carry their status; the others go on.
absl::StatusOr<BuiltStep> BuildDecode(const ServiceContext& service, const Caller& caller,
                                      const v1::DecodeRequest& request, const TensorBytes& hidden);
absl::StatusOr<std::unique_ptr<Step>> BuildRewind(const ServiceContext& service,
                                                  const Caller& caller,
                                                  const v1::RewindSessionRequest& request);
// A step that does `operation` with the session when its turn comes.
absl::StatusOr<std::unique_ptr<Step>> BuildOperation(
    const ServiceContext& service, const Caller& caller, const std::string& session_id,
    std::function<absl::Status(const std::shared_ptr<Session>&)> operation);

// Hands the step to the engine; OK: step->done is or has been called exactly once. A step none of
// whose sessions exists is answered here.
// With `may_run` a small step may run before this returns: not for callers that hold a lock which
// step->done takes.
absl::Status Submit(const ServiceContext& service, std::unique_ptr<Step> step,
                    bool may_run = false);

// Counts a step that came back: its times, and the refusals among a Decode's sequences when the
// call itself went well.
void RecordStep(const ServiceContext& service, const Step& step);

// "decode layer=3 sequences=16 rows=16 position=96": for logs.
std::string StepShapeText(const Step& step);

}  // namespace attnd::server
