// The element types of tensor cores and caches as plain bits, with conversions that give the same
// bits in device code, in host code and on the emulated device: exact upwards, round to nearest
// even downwards. CUDA's own types need CUDA's headers, which the emulated device does without.
#pragma once

#include <cstdint>
#include <type_traits>

#ifdef __CUDACC__
#define ATTND_HOST_DEVICE __host__ __device__ __forceinline__
#else
#include <bit>
#define ATTND_HOST_DEVICE inline
#endif

namespace attnd::kernels::cuda {

struct BF16 {
  uint16_t bits;
};

struct F16 {
  uint16_t bits;
};

// 1 sign, 4 exponent (bias 7), 3 mantissa bits; no infinity, largest value 448, NaN is 0x7f.
struct E4M3 {
  uint8_t bits;
};

ATTND_HOST_DEVICE float BitsToFloat(uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#elif defined(__CUDACC__)
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
#else
  return std::bit_cast<float>(bits);
#endif
}

ATTND_HOST_DEVICE uint32_t FloatToBits(float value) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(value);
#elif defined(__CUDACC__)
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  return bits;
#else
  return std::bit_cast<uint32_t>(value);
#endif
}

ATTND_HOST_DEVICE float ToFloat(float x) { return x; }

ATTND_HOST_DEVICE float ToFloat(BF16 x) { return BitsToFloat(static_cast<uint32_t>(x.bits) << 16); }

// Without a branch: exponent and mantissa are moved to their places in a float32 and the product
// with 2^112 (the difference of the biases) is exact, also for denormals.
ATTND_HOST_DEVICE float ToFloat(F16 x) {
  const uint32_t magnitude = x.bits & 0x7fffu;
  const uint32_t scaled = FloatToBits(BitsToFloat(magnitude << 13) * 0x1p112f);
  const uint32_t not_finite = magnitude >= 0x7c00u ? 0x7f800000u : 0u;
  return BitsToFloat(scaled | not_finite | (x.bits & 0x8000u) << 16);
}

ATTND_HOST_DEVICE float ToFloat(E4M3 x) {
  const uint32_t magnitude = x.bits & 0x7fu;
  const uint32_t scaled = FloatToBits(BitsToFloat(magnitude << 20) * 0x1p120f);
  const uint32_t nan = magnitude == 0x7fu ? 0x7fc00000u : 0u;
  return BitsToFloat(scaled | nan | (x.bits & 0x80u) << 24);
}

// Every NaN becomes 0x7fff, as the hardware's conversions have it.
ATTND_HOST_DEVICE BF16 ToBF16(float x) {
#if defined(__CUDA_ARCH__)
  uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return BF16{bits};
#else
  const uint32_t bits = FloatToBits(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return BF16{0x7fff};
  }
  return BF16{static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16)};
#endif
}

ATTND_HOST_DEVICE F16 ToF16(float x) {
#if defined(__CUDA_ARCH__)
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return F16{bits};
#else
  const uint32_t bits = FloatToBits(x);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return F16{0x7fff};
  }
  uint32_t half;
  if (magnitude >= 0x477ff000u) {  // 65520, half a step above the largest: infinity
    half = 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // below 2^-14: the ulp of 0.5 is f16's smallest value
    half = FloatToBits(BitsToFloat(magnitude) + 0.5f) - 0x3f000000u;
  } else {
    half = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1)) >> 13;
  }
  return F16{static_cast<uint16_t>(sign | half)};
#endif
}

// What is above 448 becomes 448, infinity too.
ATTND_HOST_DEVICE E4M3 ToE4M3(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint16_t bits;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(0.0f), "f"(x));
  return E4M3{static_cast<uint8_t>(bits)};
#else
  const uint32_t bits = FloatToBits(x);
  const uint32_t sign = bits >> 24 & 0x80u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return E4M3{0x7f};
  }
  uint32_t small;
  if (magnitude >= 0x43e00000u) {  // 448
    small = 0x7eu;
  } else if (magnitude < 0x3c800000u) {  // below 2^-6: the ulp of 2^14 is e4m3's smallest value
    small = FloatToBits(BitsToFloat(magnitude) + 0x1p14f) - 0x46800000u;
  } else {
    small = (magnitude - 0x3c000000u + 0x7ffffu + (magnitude >> 20 & 1)) >> 20;
  }
  return E4M3{static_cast<uint8_t>(sign | small)};
#endif
}

template <typename E>
ATTND_HOST_DEVICE E FromFloat(float x) {
  if constexpr (std::is_same_v<E, BF16>) {
    return ToBF16(x);
  } else if constexpr (std::is_same_v<E, F16>) {
    return ToF16(x);
  } else if constexpr (std::is_same_v<E, E4M3>) {
    return ToE4M3(x);
  } else {
    static_assert(std::is_same_v<E, float>);
    return x;
  }
}

// Two elements of 16 bits in a register as tensor cores take them: `low` in the lower half.
template <typename E>
ATTND_HOST_DEVICE uint32_t Pack(float low, float high) {
  static_assert(std::is_same_v<E, BF16> || std::is_same_v<E, F16>);
#if defined(__CUDA_ARCH__)
  uint32_t packed;
  if constexpr (std::is_same_v<E, BF16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  }
  return packed;
#else
  return static_cast<uint32_t>(FromFloat<E>(low).bits) |
         static_cast<uint32_t>(FromFloat<E>(high).bits) << 16;
#endif
}

template <typename E>
ATTND_HOST_DEVICE float UnpackLow(uint32_t packed) {
  return ToFloat(E{static_cast<uint16_t>(packed)});
}

template <typename E>
ATTND_HOST_DEVICE float UnpackHigh(uint32_t packed) {
  return ToFloat(E{static_cast<uint16_t>(packed >> 16)});
}

// Four e4m3 of one register, that of the lowest byte first.
ATTND_HOST_DEVICE void UnpackE4M3(uint32_t packed, float (&x)[4]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint32_t low, high;
  asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.rn.f16x2.e4m3x2 %0, l;"
      " cvt.rn.f16x2.e4m3x2 %1, h; }"
      : "=r"(low), "=r"(high)
      : "r"(packed));
  x[0] = UnpackLow<F16>(low);
  x[1] = UnpackHigh<F16>(low);
  x[2] = UnpackLow<F16>(high);
  x[3] = UnpackHigh<F16>(high);
#else
  for (int i = 0; i < 4; ++i) {
    x[i] = ToFloat(E4M3{static_cast<uint8_t>(packed >> 8 * i)});
  }
#endif
}

}  // namespace attnd::kernels::cuda
