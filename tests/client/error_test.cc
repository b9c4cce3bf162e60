// Statuses carry code, reason, message and retry advice there and back.
#include "client/cpp/error.h"

#include <gtest/gtest.h>

namespace attnd::client {
namespace {

TEST(Error, GoesThroughAStatusUnchanged) {
  const Error error{absl::StatusCode::kResourceExhausted, "CACHE_FULL", "no page",
                    std::chrono::milliseconds(250)};
  const Error back = ErrorOf(ToStatus(error));
  EXPECT_EQ(back.code, error.code);
  EXPECT_EQ(back.reason, "CACHE_FULL");
  EXPECT_EQ(back.message, "no page");
  EXPECT_EQ(back.retry_after, std::chrono::milliseconds(250));
  EXPECT_TRUE(back.no_effect());
}

TEST(Error, AStatusOfGrpcHasNoReasonAndAnUnknownEffect) {
  const Error error = ErrorOf(absl::UnavailableError("connection reset"));
  EXPECT_TRUE(error.reason.empty());
  EXPECT_FALSE(error.no_effect());
  EXPECT_FALSE(error.retry_after.has_value());
}

TEST(Error, OkIsNoError) {
  EXPECT_TRUE(ErrorOf(absl::OkStatus()).ok());
  EXPECT_FALSE(ErrorOf(absl::OkStatus()).no_effect());
}

}  // namespace
}  // namespace attnd::client
