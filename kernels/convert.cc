// Bit code that gcc and clang vectorise at the baseline instruction set: no _Float16, no F16C.
#include "kernels/convert.h"

#include <algorithm>
#include <cstring>

namespace attnd::kernels {
namespace {

constexpr uint32_t kF32Infinity = 0x7f800000;
constexpr float kSmallestScale = 0x1p-126f;  // below, quotients by a subnormal would pass 127
constexpr float kLargestE4M3 = 448;

uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

float FromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

uint32_t WidenF16(uint32_t half) {
  const uint32_t magnitude = half & 0x7fff;
  // The exponent is rebased by a product, exact for subnormals too: 2^(127 - 15).
  const uint32_t rebased = BitsOf(FromBits(magnitude << 13) * FromBits(239u << 23));
  const uint32_t special = kF32Infinity | (magnitude << 13);
  return ((half & 0x8000) << 16) | (magnitude >= 0x7c00 ? special : rebased);
}

uint32_t NarrowF16(uint32_t bits) {
  const uint32_t magnitude = bits & 0x7fffffff;
  const uint32_t normal = (magnitude - (112u << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  // Below 2^-14 the sum with 0.5 leaves a multiple of 2^-24 in the low bits, rounded to even.
  const uint32_t subnormal = BitsOf(FromBits(magnitude) + 0.5f) - BitsOf(0.5f);
  const uint32_t nan = 0x7e00 | ((magnitude >> 13) & 0x1ff);
  uint32_t half = magnitude < 0x38800000 ? subnormal : normal;
  half = magnitude >= 0x47800000 ? 0x7c00 : half;
  half = magnitude > kF32Infinity ? nan : half;
  return ((bits >> 16) & 0x8000) | half;
}

// The largest magnitude; they compare as integers, a NaN above an infinity.
float LargestMagnitude(const float* src, int64_t n) {
  int32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    largest = std::max(largest, static_cast<int32_t>(BitsOf(src[i]) & 0x7fffffff));
  }
  return FromBits(static_cast<uint32_t>(largest));
}

// Of a row whose largest magnitude is `max`, stored as units of up to `largest`.
float ScaleFor(float max, float largest) {
  return max == 0 ? 0 : std::max(max / largest, kSmallestScale);
}

bool IsFinite(float value) { return (BitsOf(value) & 0x7fffffff) < kF32Infinity; }

uint32_t NarrowBF16(uint32_t bits) {
  const uint32_t nan = (bits >> 16) | 0x40;
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return (bits & 0x7fffffff) > kF32Infinity ? nan : rounded;
}

// memcpy of one element: any alignment, and the loop still vectorises.
template <typename Stored, typename Widen>
bool Up(const void* src, int64_t n, float* dst, Widen widen) {
  const char* from = static_cast<const char*>(src);
  uint32_t bad = 0;
  for (int64_t i = 0; i < n; ++i) {
    Stored stored;
    std::memcpy(&stored, from + i * static_cast<int64_t>(sizeof(Stored)), sizeof(stored));
    const uint32_t bits = widen(stored);
    bad |= static_cast<uint32_t>((bits & 0x7fffffff) >= kF32Infinity);
    std::memcpy(dst + i, &bits, sizeof(bits));
  }
  return bad == 0;
}

template <typename Stored, typename Narrow>
bool Down(const float* src, int64_t n, void* dst, uint32_t infinity, Narrow narrow) {
  char* to = static_cast<char*>(dst);
  uint32_t bad = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t stored = narrow(BitsOf(src[i]));
    bad |= static_cast<uint32_t>((stored & (infinity | (infinity - 1))) >= infinity);
    const Stored narrowed = static_cast<Stored>(stored);
    std::memcpy(to + i * static_cast<int64_t>(sizeof(Stored)), &narrowed, sizeof(narrowed));
  }
  return bad == 0;
}

}  // namespace

bool ToFloat(DType dtype, const void* src, int64_t n, float* dst) {
  switch (dtype) {
    case DType::kF32:
      return Up<uint32_t>(src, n, dst, [](uint32_t bits) { return bits; });
    case DType::kBF16:
      return Up<uint16_t>(src, n, dst, [](uint32_t bits) { return bits << 16; });
    case DType::kF16:
      return Up<uint16_t>(src, n, dst, WidenF16);
    case DType::kInt8:
    case DType::kFp8E4M3:
      break;
  }
  return false;
}

bool FromFloat(DType dtype, const float* src, int64_t n, void* dst) {
  switch (dtype) {
    case DType::kF32:
      return Down<uint32_t>(src, n, dst, kF32Infinity, [](uint32_t bits) { return bits; });
    case DType::kBF16:
      return Down<uint16_t>(src, n, dst, 0x7f80, NarrowBF16);
    case DType::kF16:
      return Down<uint16_t>(src, n, dst, 0x7c00, NarrowF16);
    case DType::kInt8:
    case DType::kFp8E4M3:
      break;
  }
  return false;
}

bool Quantize(const float* src, int64_t n, int8_t* dst, float* scale) {
  const float max = LargestMagnitude(src, n);
  *scale = ScaleFor(max, 127);
  const float divisor = max == 0 ? 1 : *scale;
  for (int64_t i = 0; i < n; ++i) {
    // The sum's low bits are the integer, rounded to even, in two's complement.
    dst[i] = static_cast<int8_t>(BitsOf(src[i] / divisor + 0x1.8p23f));
  }
  return IsFinite(127 * *scale);
}

bool QuantizeE4M3(const float* src, int64_t n, uint8_t* dst, float* scale) {
  const float max = LargestMagnitude(src, n);
  *scale = ScaleFor(max, kLargestE4M3);
  const float divisor = max == 0 ? 1 : *scale;
  for (int64_t i = 0; i < n; ++i) {
    dst[i] = NarrowE4M3(src[i] / divisor);
  }
  return IsFinite(kLargestE4M3 * *scale);
}

uint8_t NarrowE4M3(float value) {
  const uint32_t bits = BitsOf(value);
  const uint32_t magnitude = bits & 0x7fffffff;
  const auto sign = static_cast<uint8_t>((bits >> 24) & 0x80);
  if (magnitude > kF32Infinity) {
    return sign | 0x7f;
  }
  if (magnitude < BitsOf(0x1p-6f)) {
    // The sum leaves a multiple of 2^-9, the subnormals' step, in the low bits, rounded to even.
    return sign | static_cast<uint8_t>(BitsOf(FromBits(magnitude) + 0x1p14f) - BitsOf(0x1p14f));
  }
  const uint32_t rounded = (magnitude - (120u << 23) + 0x7ffff + ((magnitude >> 20) & 1)) >> 20;
  return sign | static_cast<uint8_t>(std::min(rounded, 0x7eu));
}

float WidenE4M3(uint8_t stored) {
  const uint32_t magnitude = stored & 0x7f;
  // The exponent is rebased by a product, exact for subnormals too: 2^(127 - 7).
  const float value = FromBits(magnitude << 20) * FromBits(247u << 23);
  const uint32_t bits = magnitude == 0x7f ? 0x7fc00000 : BitsOf(value);
  return FromBits(bits | (uint32_t{stored} & 0x80) << 24);
}

}  // namespace attnd::kernels
