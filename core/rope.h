// Rotary angles: the frequencies of spec.md (APEX-1's YaRN included) and, for any position, the
// cosines and sines of its angles.
#pragma once

#include <cstdint>
#include <vector>

#include "core/layer_plan.h"

namespace attnd {

// theta_t for t in [0, width / 2).
std::vector<double> RopeFrequencies(const RopeSpec& spec);

// Cosines and sines in float64 from two small tables (position = high * 2^k + low, combined by
// the addition theorem), rounded to float32: exact to half a unit at any position, without a
// table of max_seq_len rows. 2^k is about the root of max_positions: 4096 rows each at 2^24.
class RopeTable {
 public:
  RopeTable(const RopeSpec& spec, int64_t max_positions);

  int64_t half() const { return half_; }  // pairs of a head
  // Writes the [half()] cosines and sines of `position`, which is in [0, max_positions).
  void Row(int64_t position, float* cos, float* sin) const;

 private:
  int64_t half_ = 0;
  int64_t max_positions_ = 0;
  int64_t low_bits_ = 0;                     // k
  std::vector<double> low_cos_, low_sin_;    // [2^k][half]
  std::vector<double> high_cos_, high_sin_;  // [(max_positions - 1) / 2^k + 1][half]
};

}  // namespace attnd
