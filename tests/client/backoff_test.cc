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

// The pause after a first failure.
std::optional<milliseconds> First(const Error& error, const RetryOptions& options,
                                  uint64_t random = 0) {
  return Backoff(options).PauseAfter({error, milliseconds(0), false}, random);
}

TEST(Backoff, RepeatsOnlyTransportFailuresAndMoves) {
  const RetryOptions options;
  const auto repeats = [&](const Error& error) { return First(error, options).has_value(); };
  EXPECT_TRUE(repeats(Make(absl::StatusCode::kUnavailable, "")));
  EXPECT_TRUE(repeats(Make(absl::StatusCode::kUnavailable, "SESSION_MOVING")));
  EXPECT_FALSE(repeats(Make(absl::StatusCode::kUnavailable, "DRAINING")));
  EXPECT_FALSE(repeats(Make(absl::StatusCode::kNotFound, "SESSION_UNKNOWN")));
  EXPECT_FALSE(repeats(Make(absl::StatusCode::kDeadlineExceeded, "")));
  EXPECT_FALSE(repeats(Make(absl::StatusCode::kResourceExhausted, "")));
  EXPECT_FALSE(repeats(Make(absl::StatusCode::kResourceExhausted, "MESSAGE_TOO_LARGE")));
  EXPECT_FALSE(repeats(Make(absl::StatusCode::kInternal, "INTERNAL")));
  EXPECT_FALSE(repeats(Error()));
}

TEST(Backoff, WaitsAsAdvisedOnlyWhenAsked) {
  RetryOptions options;
  const Error full = Make(absl::StatusCode::kResourceExhausted, "CACHE_FULL", milliseconds(5000));
  EXPECT_FALSE(First(full, options).has_value());
  options.wait_when_advised = true;
  EXPECT_EQ(First(full, options), milliseconds(5000));
}

TEST(Backoff, WaitsForAMoveForSoLongHoweverManyTriesThatTakes) {
  RetryOptions options;
  options.max_attempts = 2;
  Backoff backoff(options);
  const Error moving = Make(absl::StatusCode::kUnavailable, "SESSION_MOVING");
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(backoff.PauseAfter({moving, milliseconds(29'999), false}, 0).has_value());
  }
  EXPECT_FALSE(backoff.PauseAfter({moving, milliseconds(30'000), false}, 0).has_value());
  const Error advised = Make(absl::StatusCode::kUnavailable, "SESSION_MOVING", milliseconds(700));
  EXPECT_EQ(First(advised, options), milliseconds(700));
  // A transport failure after the waiting still has its own tries.
  Backoff other(options);
  EXPECT_TRUE(other.PauseAfter({moving, milliseconds(1), false}, 0).has_value());
  const Error lost = Make(absl::StatusCode::kUnavailable, "");
  EXPECT_TRUE(other.PauseAfter({lost, milliseconds(2), false}, 0).has_value());
  EXPECT_FALSE(other.PauseAfter({lost, milliseconds(3), false}, 0).has_value());
}

TEST(Backoff, WaitsForASessionToArriveWhereAnotherReplicaAnswers) {
  const RetryOptions options;
  const Error unknown = Make(absl::StatusCode::kNotFound, "SESSION_UNKNOWN");
  Backoff backoff(options);
  EXPECT_TRUE(backoff.PauseAfter({unknown, milliseconds(29'999), true}, 0).has_value());
  EXPECT_FALSE(backoff.PauseAfter({unknown, milliseconds(30'000), true}, 0).has_value());
  const Error closed = Make(absl::StatusCode::kNotFound, "SESSION_CLOSED");
  EXPECT_FALSE(backoff.PauseAfter({closed, milliseconds(0), true}, 0).has_value());
}

TEST(Backoff, DoublesUpToTheMaximumAndEndsAfterTheLastAttempt) {
  RetryOptions options;
  options.max_attempts = 9;
  const FailedTry lost{Make(absl::StatusCode::kUnavailable, ""), milliseconds(0), false};
  Backoff backoff(options);
  EXPECT_EQ(backoff.PauseAfter(lost, 0), milliseconds(50));
  EXPECT_EQ(backoff.PauseAfter(lost, 0), milliseconds(100));
  for (int i = 3; i < 8; ++i) {
    EXPECT_TRUE(backoff.PauseAfter(lost, 0).has_value());
  }
  EXPECT_EQ(backoff.PauseAfter(lost, 0), milliseconds(2000));
  EXPECT_FALSE(backoff.PauseAfter(lost, 0).has_value());
}

TEST(Backoff, SpreadsOverTheUpperHalf) {
  const RetryOptions options;
  const Error lost = Make(absl::StatusCode::kUnavailable, "");
  for (uint64_t random = 0; random < 200; ++random) {
    const milliseconds pause = *First(lost, options, random);
    EXPECT_GT(pause, milliseconds(25));
    EXPECT_LE(pause, milliseconds(50));
  }
}

}  // namespace
}  // namespace attnd::client
