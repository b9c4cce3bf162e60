#include "client/cpp/backoff.h"

#include <algorithm>

namespace attnd::client {
namespace {

// The transport failed. A deadline that passed is not one: the caller's time is over, and so is
// a message over the limit: it would be again.
bool IsTransport(const Error& error) {
  return error.code == absl::StatusCode::kUnavailable && error.reason.empty();
}

std::chrono::milliseconds Exponential(int attempt, uint64_t random, const RetryOptions& options) {
  auto pause = options.initial_backoff;
  for (int i = 1; i < attempt && pause < options.max_backoff; ++i) {
    pause *= 2;
  }
  pause = std::min(pause, options.max_backoff);
  const int64_t half = std::max<int64_t>(1, pause.count() / 2);
  return pause -
         std::chrono::milliseconds(static_cast<int64_t>(random % static_cast<uint64_t>(half)));
}

}  // namespace

std::optional<std::chrono::milliseconds> PauseBeforeRetry(const Error& error, int attempt,
                                                          uint64_t random,
                                                          const RetryOptions& options) {
  if (error.ok() || attempt >= options.max_attempts) {
    return std::nullopt;
  }
  if (IsTransport(error)) {
    return Exponential(attempt, random, options);
  }
  const bool moving = error.reason == "SESSION_MOVING";
  if (options.wait_when_advised && (error.retry_after.has_value() || moving)) {
    return std::max(error.retry_after.value_or(std::chrono::milliseconds(0)),
                    Exponential(attempt, random, options));
  }
  return std::nullopt;
}

}  // namespace attnd::client
