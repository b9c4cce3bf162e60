// When the requests of an open-loop load are due.
#include "client/attnctl/arrivals.h"

#include <cmath>

#include "client/attnctl/mix.h"

namespace attnd::attnctl {
namespace {

// In [0, 1), from the 53 bits that a double holds.
double Uniform(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

}  // namespace

int64_t Arrivals::NextNs() {
  const uint64_t index = count_++;
  if (options_.kind == ArrivalOptions::Kind::kConstant) {
    return static_cast<int64_t>(static_cast<double>(index) * 1e9 / options_.rate);
  }
  poisson_ns_ -= std::log1p(-Uniform(Mix(Mix(options_.seed) ^ index))) * 1e9 / options_.rate;
  return static_cast<int64_t>(poisson_ns_);
}

}  // namespace attnd::attnctl
