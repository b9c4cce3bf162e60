// Random numbers that are the same on every machine.
#pragma once

#include <cstdint>
#include <vector>

namespace attnd::gpu {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}

  uint64_t Next() {  // splitmix64
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  int64_t Below(int64_t n) { return static_cast<int64_t>(Next() % static_cast<uint64_t>(n)); }
  // In [-1, 1).
  float Float() {
    return static_cast<float>(static_cast<int64_t>(Next() >> 40) - (1 << 23)) / (1 << 23);
  }
  std::vector<float> Floats(int64_t n) {
    std::vector<float> values(static_cast<size_t>(n));
    for (float& value : values) {
      value = Float();
    }
    return values;
  }

 private:
  uint64_t state_;
};

}  // namespace attnd::gpu
