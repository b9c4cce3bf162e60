// Statuses on the wire: code, message, reason, retry advice.
#include "server/status_map.h"

#include "gtest/gtest.h"

namespace attnd::server {
namespace {

TEST(StatusMapTest, OkIsOk) {
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
  v1::Status wire;
  wire.set_code(3);
  ToWireStatus(absl::OkStatus(), &wire);
  EXPECT_EQ(wire.code(), 0);
  EXPECT_EQ(wire.reason(), "");
}

TEST(StatusMapTest, EveryReasonKeepsItsCodeBothWays) {
  for (int i = 0; i < kNumReasons; ++i) {
    const auto reason = static_cast<Reason>(i);
    const absl::Status status = MakeError(reason, "field is 1; expected 2");
    const grpc::Status grpc = ToGrpcStatus(status);
    EXPECT_EQ(static_cast<int>(grpc.error_code()), static_cast<int>(ReasonCode(reason)));
    EXPECT_EQ(grpc.error_message(), "field is 1; expected 2");
    EXPECT_EQ(grpc.error_details(), "");
    v1::Status wire;
    ToWireStatus(status, &wire);
    EXPECT_EQ(wire.code(), static_cast<int>(ReasonCode(reason)));
    EXPECT_EQ(wire.reason(), ReasonName(reason));
    EXPECT_FALSE(wire.has_retry_after());
  }
}

// What was not made as an error of the contract is a bug of ours, whatever its code says.
TEST(StatusMapTest, AStatusWithoutAReasonIsInternal) {
  const absl::Status status = absl::NotFoundError("lost");
  EXPECT_EQ(ToGrpcStatus(status).error_code(), grpc::StatusCode::INTERNAL);
  v1::Status wire;
  ToWireStatus(status, &wire);
  EXPECT_EQ(wire.reason(), "INTERNAL");
  EXPECT_EQ(wire.code(), 13);
}

TEST(StatusMapTest, RetryAdviceIsRetryInfo) {
  const absl::Status status = MakeRetryableError(Reason::kCacheFull, "full", 1250);
  v1::Status wire;
  ToWireStatus(status, &wire);
  EXPECT_EQ(wire.retry_after().seconds(), 1);
  EXPECT_EQ(wire.retry_after().nanos(), 250'000'000);
  // google.rpc.Status {code: 8, message: "full", details: [RetryInfo {retry_delay: 1.25 s}]}, as
  // protoc --encode writes it.
  const std::string duration("\x08\x01\x10\x80\xe5\x9a\x77", 7);
  const std::string info = std::string("\x0a\x07") + duration;
  const std::string url = "type.googleapis.com/google.rpc.RetryInfo";
  const std::string any = std::string("\x0a") + static_cast<char>(url.size()) + url + "\x12" +
                          static_cast<char>(info.size()) + info;
  const std::string expected =
      std::string("\x08\x08\x12\x04") + "full" + "\x1a" + static_cast<char>(any.size()) + any;
  EXPECT_EQ(ToGrpcStatus(status).error_details(), expected);
}

TEST(StatusMapTest, RejectionsAreWantOfRoomOrReadiness) {
  EXPECT_TRUE(IsRejection(MakeError(Reason::kCacheFull, "")));
  EXPECT_TRUE(IsRejection(MakeError(Reason::kQueueFull, "")));
  EXPECT_TRUE(IsRejection(MakeError(Reason::kDraining, "")));
  EXPECT_TRUE(IsRejection(MakeError(Reason::kNotReady, "")));
  EXPECT_FALSE(IsRejection(absl::OkStatus()));
  EXPECT_FALSE(IsRejection(MakeError(Reason::kBadTensor, "")));
  EXPECT_FALSE(IsRejection(MakeError(Reason::kInternal, "")));
}

TEST(StatusMapTest, CodesHaveTheirGrpcNames) {
  EXPECT_STREQ(CodeName(absl::StatusCode::kOk), "OK");
  EXPECT_STREQ(CodeName(absl::StatusCode::kCancelled), "CANCELLED");
  EXPECT_STREQ(CodeName(absl::StatusCode::kInvalidArgument), "INVALID_ARGUMENT");
  EXPECT_STREQ(CodeName(absl::StatusCode::kDeadlineExceeded), "DEADLINE_EXCEEDED");
  EXPECT_STREQ(CodeName(absl::StatusCode::kFailedPrecondition), "FAILED_PRECONDITION");
  EXPECT_STREQ(CodeName(absl::StatusCode::kUnauthenticated), "UNAUTHENTICATED");
}

}  // namespace
}  // namespace attnd::server
