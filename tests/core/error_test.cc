#include "core/error.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

namespace attnd {
namespace {

TEST(Error, EveryReasonTravelsAndHasANameOfItsOwn) {
  std::set<std::string> names;
  for (int i = 0; i < kNumReasons; ++i) {
    const Reason reason = static_cast<Reason>(i);
    EXPECT_TRUE(names.insert(ReasonName(reason)).second) << ReasonName(reason);
    const absl::Status status = MakeError(reason, "position is 3; expected 4");
    EXPECT_EQ(status.code(), ReasonCode(reason));
    EXPECT_NE(status.code(), absl::StatusCode::kOk);
    EXPECT_EQ(std::string(status.message()), "position is 3; expected 4");
    EXPECT_EQ(ReasonOf(status), reason);
    EXPECT_EQ(RetryAfterMs(status), std::nullopt);
  }
}

TEST(Error, CodesAreTheContracts) {
  using C = absl::StatusCode;
  const std::map<C, std::set<std::string>> contract = {
      {C::kInvalidArgument,
       {"BAD_ARGUMENT", "BAD_TENSOR", "BAD_LAYER", "BAD_BATCH", "BAD_SESSION_ID", "NOT_FINITE"}},
      {C::kNotFound, {"SESSION_UNKNOWN", "SESSION_EXPIRED", "SESSION_EVICTED", "SESSION_CLOSED"}},
      {C::kAlreadyExists, {"SESSION_EXISTS"}},
      {C::kFailedPrecondition,
       {"POSITION_MISMATCH", "REWIND_TOO_FAR", "PREFIX_INCOMPLETE", "PREFIX_ANSWERED",
        "MODEL_MISMATCH", "FORMAT_MISMATCH"}},
      {C::kOutOfRange, {"PAST_MAX_SEQ_LEN", "PAST_MAX_TOKENS"}},
      {C::kResourceExhausted,
       {"CACHE_FULL", "TOO_MANY_SESSIONS", "QUEUE_FULL", "MESSAGE_TOO_LARGE", "TENANT_QUOTA"}},
      {C::kUnauthenticated, {"BAD_CREDENTIALS"}},
      {C::kPermissionDenied, {"NOT_ALLOWED"}},
      {C::kDataLoss, {"BAD_DIGEST", "TRUNCATED"}},
      {C::kUnavailable, {"NOT_READY", "DRAINING", "SESSION_MOVING"}},
      {C::kDeadlineExceeded, {"STEP_TIMEOUT"}},
      {C::kCancelled, {"STEP_CANCELLED"}},
      {C::kInternal, {"INTERNAL"}},
  };
  std::map<C, std::set<std::string>> ours;
  for (int i = 0; i < kNumReasons; ++i) {
    ours[ReasonCode(static_cast<Reason>(i))].insert(ReasonName(static_cast<Reason>(i)));
  }
  EXPECT_EQ(ours, contract);
}

TEST(Error, CarriesRetryAdvice) {
  const absl::Status status = MakeRetryableError(Reason::kCacheFull, "full", 250);
  EXPECT_EQ(ReasonOf(status), Reason::kCacheFull);
  EXPECT_EQ(RetryAfterMs(status), 250);
}

TEST(Error, OtherStatusesHaveNoReason) {
  EXPECT_EQ(ReasonOf(absl::OkStatus()), std::nullopt);
  EXPECT_EQ(ReasonOf(absl::InternalError("x")), std::nullopt);
  EXPECT_EQ(RetryAfterMs(absl::UnavailableError("x")), std::nullopt);
}

}  // namespace
}  // namespace attnd
