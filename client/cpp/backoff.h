// When a failed call is repeated, and after which pause. Pure, so that tests need no time.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "client/cpp/error.h"
#include "client/cpp/options.h"

namespace attnd::client {

// The pause before the next try, or nullopt when `error` is final. `attempt` counts the tries
// made so far, from 1; `random` is any number, it spreads clients that failed together.
std::optional<std::chrono::milliseconds> PauseBeforeRetry(const Error& error, int attempt,
                                                          uint64_t random,
                                                          const RetryOptions& options);

}  // namespace attnd::client
