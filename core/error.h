// Errors that a caller can cause: an absl::Status with a reason from the wire contract.
//
// The reason travels as a payload of the status; the code follows from the reason through one
// table, so that a reason can never be sent under two codes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"

namespace attnd {

enum class Reason : uint8_t {
  kBadArgument,
  kBadTensor,
  kBadLayer,
  kBadBatch,
  kBadSessionId,
  kNotFinite,
  kSessionUnknown,
  kSessionExpired,
  kSessionEvicted,
  kSessionClosed,
  kSessionExists,
  kPositionMismatch,
  kRewindTooFar,
  kPrefixIncomplete,
  kPrefixAnswered,
  kModelMismatch,
  kFormatMismatch,
  kPastMaxSeqLen,
  kPastMaxTokens,
  kCacheFull,
  kTooManySessions,
  kQueueFull,
  kMessageTooLarge,
  kTenantQuota,
  kBadCredentials,
  kNotAllowed,
  kBadDigest,
  kTruncated,
  kNotReady,
  kDraining,
  kSessionMoving,
  kStepTimeout,
  kStepCancelled,
  kInternal,
};
inline constexpr int kNumReasons = static_cast<int>(Reason::kInternal) + 1;

// "POSITION_MISMATCH": as the wire, the metrics and the logs write it.
const char* ReasonName(Reason reason);
// The status code of a reason; the only table of its kind.
absl::StatusCode ReasonCode(Reason reason);

// A status of that reason. `message` names the field, the value and the limit or expectation.
absl::Status MakeError(Reason reason, const std::string& message);
// Likewise, with advice to try again after so many milliseconds.
absl::Status MakeRetryableError(Reason reason, const std::string& message, int64_t retry_after_ms);

// The reason of a status made here; nullopt for OK and for statuses of other origin.
std::optional<Reason> ReasonOf(const absl::Status& status);
// The retry advice in milliseconds, if the status carries one.
std::optional<int64_t> RetryAfterMs(const absl::Status& status);

}  // namespace attnd
