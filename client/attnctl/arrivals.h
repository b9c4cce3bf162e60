// When the requests of an open-loop load are due: known beforehand, whatever the server does.
#pragma once

#include <cstdint>

namespace attnd::attnctl {

struct ArrivalOptions {
  enum class Kind { kPoisson, kConstant };

  Kind kind = Kind::kPoisson;
  double rate = 1;  // a second
  uint64_t seed = 1;
};

class Arrivals {
 public:
  explicit Arrivals(const ArrivalOptions& options) : options_(options) {}

  // The next request's time in nanoseconds from the start, never before the one before it. The
  // same seed gives the same times on every machine.
  int64_t NextNs();

 private:
  const ArrivalOptions options_;
  uint64_t count_ = 0;
  double poisson_ns_ = 0;
};

}  // namespace attnd::attnctl
