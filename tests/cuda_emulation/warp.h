// The collectives of a warp.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cuda_emulation/machine.h"
#include "cuda_emulation/shared.h"
#include "cuda_emulation/site.h"
#include "kernels/cuda/element.cuh"

namespace attnd::kernels::cuda {
namespace emulation {

uint32_t ShuffleBits(uint32_t v, int source, Site site);
void MmaBF16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], Site site);
void MmaF16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], Site site);
void LoadMatrix(uint32_t (&r)[4], int64_t row, bool transposed, Site site);

}  // namespace emulation

void SyncWarp(emulation::Site site = emulation::Here());
bool Any(bool v, emulation::Site site = emulation::Here());

template <typename T>
T Shuffle(T v, int lane, emulation::Site site = emulation::Here()) {
  static_assert(sizeof(T) == 4);
  uint32_t bits;
  std::memcpy(&bits, &v, sizeof(bits));
  bits = emulation::ShuffleBits(bits, lane, site);
  std::memcpy(&v, &bits, sizeof(bits));
  return v;
}

template <typename T>
T ShuffleXor(T v, int mask, emulation::Site site = emulation::Here()) {
  return Shuffle(v, emulation::Machine::Current().thread() % emulation::kWarp ^ mask, site);
}

template <typename E>
void Mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
         emulation::Site site = emulation::Here()) {
  static_assert(std::is_same_v<E, BF16> || std::is_same_v<E, F16>);
  if constexpr (std::is_same_v<E, BF16>) {
    emulation::MmaBF16(d, a, b, site);
  } else {
    emulation::MmaF16(d, a, b, site);
  }
}

inline void LoadMatrix4(uint32_t (&r)[4], const Shared<uint16_t>& s, int i,
                        emulation::Site site = emulation::Here()) {
  emulation::LoadMatrix(r, s.Offset(i, 16, site), false, site);
}

inline void LoadMatrix4Transposed(uint32_t (&r)[4], const Shared<uint16_t>& s, int i,
                                  emulation::Site site = emulation::Here()) {
  emulation::LoadMatrix(r, s.Offset(i, 16, site), true, site);
}

}  // namespace attnd::kernels::cuda
