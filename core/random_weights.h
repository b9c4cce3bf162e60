// Weights from a seed, the same bits on every machine: integers and one multiplication.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/weights.h"

namespace attnd {

// Writes `count` float32 elements of the tensor `name`, whose fan-in is `in`. Element i is
//   d = XXH3-64 of the name's bytes, seeded with `seed`
//   h = XXH3-64, seed 0, of sixteen bytes: d, then i, both little-endian
//   u = h >> 40, the top 24 bits
//   float32(2 u + 1 - 2^24) * float32(1.5 sqrt(3 / in) / 2^24)
// The first factor is an odd integer below 2^24 and exact, so that only the product is rounded:
// uniform in +-1.5 sqrt(3 / in), symmetric, never 0.
void FillRandomWeights(uint64_t seed, const std::string& name, int64_t in, int64_t count,
                       float* out);

// `source` is "random:SEED", SEED a decimal number below 2^64.
absl::StatusOr<std::unique_ptr<WeightSource>> OpenRandomWeights(const std::string& source);

}  // namespace attnd
