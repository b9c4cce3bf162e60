// When a failed call is repeated, and after which pause. Knows no clock, so that tests need no
// time.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "client/cpp/error.h"
#include "client/cpp/options.h"

namespace attnd::client {

// What a failed try was like.
struct FailedTry {
  Error error;
  std::chrono::milliseconds elapsed{0};  // since the call's first try began
  // Another replica than before answers, since less than RetryOptions::arrival_wait, or
  // broken_arrival_wait.
  bool new_replica = false;
};

// Whether the server is gone, or going: no answer came, or one that says so.
bool IsBroken(const Error& error);

// True when the session is on its way to another replica and waiting for it may help yet.
bool WaitsForMove(const FailedTry& failed, const RetryOptions& options);

// The tries of one call.
class Backoff {
 public:
  explicit Backoff(const RetryOptions& options) : options_(options) {}

  // The pause before the next try, or nullopt when the error is final. `random` is any number, it
  // spreads clients that failed together.
  std::optional<std::chrono::milliseconds> PauseAfter(const FailedTry& failed, uint64_t random);

 private:
  std::chrono::milliseconds Exponential(int count, uint64_t random) const;

  const RetryOptions options_;
  int attempts_ = 0;  // but for those that met a move, which time alone bounds
  int moves_ = 0;
};

}  // namespace attnd::client
