// Reasons, their names and codes, and how they travel in a status.
#include "core/error.h"

#include <array>
#include <cstdlib>

#include "absl/strings/cord.h"
#include "kernels/check.h"

namespace attnd {
namespace {

constexpr char kReasonUrl[] = "attnd-reason";
constexpr char kRetryUrl[] = "attnd-retry-after-ms";

struct ReasonRow {
  Reason reason;
  const char* name;
  absl::StatusCode code;
};

using Code = absl::StatusCode;
constexpr std::array<ReasonRow, kNumReasons> kReasons = {{
    {Reason::kBadArgument, "BAD_ARGUMENT", Code::kInvalidArgument},
    {Reason::kBadTensor, "BAD_TENSOR", Code::kInvalidArgument},
    {Reason::kBadLayer, "BAD_LAYER", Code::kInvalidArgument},
    {Reason::kBadBatch, "BAD_BATCH", Code::kInvalidArgument},
    {Reason::kBadSessionId, "BAD_SESSION_ID", Code::kInvalidArgument},
    {Reason::kNotFinite, "NOT_FINITE", Code::kInvalidArgument},
    {Reason::kSessionUnknown, "SESSION_UNKNOWN", Code::kNotFound},
    {Reason::kSessionExpired, "SESSION_EXPIRED", Code::kNotFound},
    {Reason::kSessionEvicted, "SESSION_EVICTED", Code::kNotFound},
    {Reason::kSessionClosed, "SESSION_CLOSED", Code::kNotFound},
    {Reason::kSessionExists, "SESSION_EXISTS", Code::kAlreadyExists},
    {Reason::kPositionMismatch, "POSITION_MISMATCH", Code::kFailedPrecondition},
    {Reason::kRewindTooFar, "REWIND_TOO_FAR", Code::kFailedPrecondition},
    {Reason::kPrefixIncomplete, "PREFIX_INCOMPLETE", Code::kFailedPrecondition},
    {Reason::kPrefixAnswered, "PREFIX_ANSWERED", Code::kFailedPrecondition},
    {Reason::kModelMismatch, "MODEL_MISMATCH", Code::kFailedPrecondition},
    {Reason::kFormatMismatch, "FORMAT_MISMATCH", Code::kFailedPrecondition},
    {Reason::kPastMaxSeqLen, "PAST_MAX_SEQ_LEN", Code::kOutOfRange},
    {Reason::kPastMaxTokens, "PAST_MAX_TOKENS", Code::kOutOfRange},
    {Reason::kCacheFull, "CACHE_FULL", Code::kResourceExhausted},
    {Reason::kTooManySessions, "TOO_MANY_SESSIONS", Code::kResourceExhausted},
    {Reason::kQueueFull, "QUEUE_FULL", Code::kResourceExhausted},
    {Reason::kMessageTooLarge, "MESSAGE_TOO_LARGE", Code::kResourceExhausted},
    {Reason::kTenantQuota, "TENANT_QUOTA", Code::kResourceExhausted},
    {Reason::kBadCredentials, "BAD_CREDENTIALS", Code::kUnauthenticated},
    {Reason::kNotAllowed, "NOT_ALLOWED", Code::kPermissionDenied},
    {Reason::kBadDigest, "BAD_DIGEST", Code::kDataLoss},
    {Reason::kTruncated, "TRUNCATED", Code::kDataLoss},
    {Reason::kNotReady, "NOT_READY", Code::kUnavailable},
    {Reason::kDraining, "DRAINING", Code::kUnavailable},
    {Reason::kSessionMoving, "SESSION_MOVING", Code::kUnavailable},
    {Reason::kStepTimeout, "STEP_TIMEOUT", Code::kDeadlineExceeded},
    {Reason::kStepCancelled, "STEP_CANCELLED", Code::kCancelled},
    {Reason::kInternal, "INTERNAL", Code::kInternal},
}};

constexpr bool InOrder() {
  for (int i = 0; i < kNumReasons; ++i) {
    if (static_cast<int>(kReasons[i].reason) != i) {
      return false;
    }
  }
  return true;
}
static_assert(InOrder(), "row i is reason i");

const ReasonRow& Row(Reason reason) {
  const int index = static_cast<int>(reason);
  Check(index >= 0 && index < kNumReasons, "a reason of the enumeration");
  return kReasons[index];
}

}  // namespace

const char* ReasonName(Reason reason) { return Row(reason).name; }

absl::StatusCode ReasonCode(Reason reason) { return Row(reason).code; }

absl::Status MakeError(Reason reason, const std::string& message) {
  absl::Status status(ReasonCode(reason), message);
  status.SetPayload(kReasonUrl, absl::Cord(ReasonName(reason)));
  return status;
}

absl::Status MakeRetryableError(Reason reason, const std::string& message, int64_t retry_after_ms) {
  absl::Status status = MakeError(reason, message);
  status.SetPayload(kRetryUrl, absl::Cord(std::to_string(retry_after_ms)));
  return status;
}

std::optional<Reason> ReasonOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kReasonUrl);
  if (!payload) {
    return std::nullopt;
  }
  for (const ReasonRow& row : kReasons) {
    if (*payload == row.name) {
      return row.reason;
    }
  }
  return std::nullopt;
}

std::optional<int64_t> RetryAfterMs(const absl::Status& status) {
  const auto payload = status.GetPayload(kRetryUrl);
  if (!payload) {
    return std::nullopt;
  }
  // Written by MakeRetryableError alone, so it is a number.
  return std::strtoll(std::string(*payload).c_str(), nullptr, 10);
}

}  // namespace attnd
