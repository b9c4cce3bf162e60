// Time, injected: tests move it by hand.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>

namespace attnd {

// Nanoseconds of a monotonic clock of unknown origin.
using MonotonicNs = int64_t;
inline constexpr MonotonicNs kNever = std::numeric_limits<int64_t>::max();

class Clock {
 public:
  virtual ~Clock() = default;
  virtual MonotonicNs Now() const = 0;
  // Nanoseconds since the Unix epoch: for timestamps that people read, never for deadlines.
  virtual int64_t WallNs() const = 0;
};

class SystemClock final : public Clock {
 public:
  MonotonicNs Now() const override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  int64_t WallNs() const override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  }
};

}  // namespace attnd
