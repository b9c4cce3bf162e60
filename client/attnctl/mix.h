// Bits that look random and are the same on every machine.
#pragma once

#include <cstdint>

namespace attnd::attnctl {

// The finalizer of SplitMix64: every bit of the result depends on every bit of x.
inline uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace attnd::attnctl
