#include "client/cpp/backoff.h"

#include <algorithm>

namespace attnd::client {
namespace {

// The transport failed. A deadline that passed is not one: the caller's time is over, and so is
// a message over the limit: it would be again.
bool IsTransport(const Error& error) {
  return error.code == absl::StatusCode::kUnavailable && error.reason.empty();
}

}  // namespace

bool IsBroken(const Error& error) {
  switch (error.code) {
    case absl::StatusCode::kUnavailable:
      return error.reason.empty() || error.reason == "DRAINING" || error.reason == "NOT_READY";
    case absl::StatusCode::kInternal:  // these three: a stream that was reset, as balancers do
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kCancelled:
      return error.reason.empty();
    default:
      return false;
  }
}

bool WaitsForMove(const FailedTry& failed, const RetryOptions& options) {
  if (failed.error.reason == "SESSION_MOVING") {
    return failed.elapsed < options.move_wait;
  }
  // Also bounded by the call's own time: replicas that change all the time end no wait.
  return failed.error.reason == "SESSION_UNKNOWN" && failed.new_replica &&
         failed.elapsed < options.arrival_wait;
}

std::chrono::milliseconds Backoff::Exponential(int count, uint64_t random) const {
  auto pause = options_.initial_backoff;
  for (int i = 1; i < count && pause < options_.max_backoff; ++i) {
    pause *= 2;
  }
  pause = std::min(pause, options_.max_backoff);
  const int64_t half = std::max<int64_t>(1, pause.count() / 2);
  return pause -
         std::chrono::milliseconds(static_cast<int64_t>(random % static_cast<uint64_t>(half)));
}

std::optional<std::chrono::milliseconds> Backoff::PauseAfter(const FailedTry& failed,
                                                             uint64_t random) {
  const Error& error = failed.error;
  const auto advised = error.retry_after.value_or(std::chrono::milliseconds(0));
  if (WaitsForMove(failed, options_)) {
    return std::max(advised, Exponential(++moves_, random));
  }
  if (error.ok() || ++attempts_ >= options_.max_attempts || error.reason == "SESSION_MOVING") {
    return std::nullopt;
  }
  if (IsTransport(error)) {
    return Exponential(attempts_, random);
  }
  if (options_.wait_when_advised && error.retry_after.has_value()) {
    return std::max(advised, Exponential(attempts_, random));
  }
  return std::nullopt;
}

}  // namespace attnd::client
