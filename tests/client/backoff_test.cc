// Which failures are repeated, and after how long.
#include "client/cpp/backoff.h"

#include <gtest/gtest.h>

namespace attnd::client {
namespace {

using std::chrono::milliseconds;

Error Make(absl::StatusCode code, const std::string& reason,
           std::optional<milliseconds> retry_after = std::nullopt) {
  return {code, reason, "message", retry_after};
}

TEST(Backoff, RepeatsOnlyTransportFailures) {
  const RetryOptions options;
  const auto repeats = [&](const Error& error) {
    return PauseBeforeRetry(error, 1, 0, options).has_value();
  };
  EXPECT_TRUE(repeats(Make(absl::StatusCode::kUnavailable, "")));
  EXPECT_FALSE(repeats(Make(absl::StatusCode::kUnavailable, "DRAINING")));
  EXPECT_FALSE(repeats(Make(absl::StatusCode::kDeadlineExceeded, "")));
  EXPECT_FALSE(repeats(Make(absl::StatusCode::kResourceExhausted, "")));
  EXPECT_FALSE(repeats(Make(absl::StatusCode::kResourceExhausted, "MESSAGE_TOO_LARGE")));
  EXPECT_FALSE(repeats(Make(absl::StatusCode::kInternal, "INTERNAL")));
  EXPECT_FALSE(repeats(Error()));
}

TEST(Backoff, WaitsAsAdvisedOnlyWhenAsked) {
  RetryOptions options;
  const Error full = Make(absl::StatusCode::kResourceExhausted, "CACHE_FULL", milliseconds(5000));
  const Error moving = Make(absl::StatusCode::kUnavailable, "SESSION_MOVING");
  EXPECT_FALSE(PauseBeforeRetry(full, 1, 0, options).has_value());
  EXPECT_FALSE(PauseBeforeRetry(moving, 1, 0, options).has_value());
  options.wait_when_advised = true;
  EXPECT_EQ(PauseBeforeRetry(full, 1, 0, options), milliseconds(5000));
  EXPECT_TRUE(PauseBeforeRetry(moving, 1, 0, options).has_value());
  EXPECT_FALSE(PauseBeforeRetry(Make(absl::StatusCode::kNotFound, "SESSION_UNKNOWN"), 1, 0, options)
                   .has_value());
}

TEST(Backoff, DoublesUpToTheMaximumAndEndsAfterTheLastAttempt) {
  RetryOptions options;
  options.max_attempts = 9;
  const Error lost = Make(absl::StatusCode::kUnavailable, "");
  EXPECT_EQ(PauseBeforeRetry(lost, 1, 0, options), milliseconds(50));
  EXPECT_EQ(PauseBeforeRetry(lost, 2, 0, options), milliseconds(100));
  EXPECT_EQ(PauseBeforeRetry(lost, 8, 0, options), milliseconds(2000));
  EXPECT_FALSE(PauseBeforeRetry(lost, 9, 0, options).has_value());
}

TEST(Backoff, SpreadsOverTheUpperHalf) {
  const RetryOptions options;
  const Error lost = Make(absl::StatusCode::kUnavailable, "");
  for (uint64_t random = 0; random < 200; ++random) {
    const milliseconds pause = *PauseBeforeRetry(lost, 2, random, options);
    EXPECT_GT(pause, milliseconds(50));
    EXPECT_LE(pause, milliseconds(100));
  }
}

}  // namespace
}  // namespace attnd::client
