// What the machine can do at most: the ceilings that every figure of the benchmark is a share of.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace attnd::bench {

// "avx3", "avx2", "sse4" ... that this build has and this machine runs, best first.
std::vector<std::string> CeilingIsas();

// Multiplies and adds of independent float32 vectors in registers, `millions` of iterations on
// each of `threads` threads; FLOP/s of all together. `isa` is one of CeilingIsas().
double FmaRate(const std::string& isa, int threads, int64_t millions);

// Bytes/s of `threads` threads that sum disjoint parts of a buffer of 256 MiB, more than caches
// hold, once.
class ReadCeiling {
 public:
  explicit ReadCeiling(int threads);
  double Rate() const;

 private:
  int threads_;
  std::vector<float> buffer_;
};

}  // namespace attnd::bench
