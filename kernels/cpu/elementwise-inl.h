// Rotation, widening, and exp over arrays.
#if defined(KERNELS_CPU_ELEMENTWISE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KERNELS_CPU_ELEMENTWISE_INL_H_
#undef KERNELS_CPU_ELEMENTWISE_INL_H_
#else
#define KERNELS_CPU_ELEMENTWISE_INL_H_
#endif

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attnd::kernels {
namespace HWY_NAMESPACE {

HWY_INLINE void RotatePair(float* pair, float cos, float sin) {
  const float even = pair[0];
  const float odd = pair[1];
  pair[0] = even * cos - odd * sin;
  pair[1] = odd * cos + even * sin;
}

void Rope(float* x, const float* cos, const float* sin, int64_t heads, int64_t half) {
  for (int64_t head = 0; head < heads; ++head) {
    float* pairs = x + head * 2 * half;
    int64_t t = 0;
#if HWY_TARGET != HWY_SCALAR
    const Floats d;
    for (; t + kLanes <= half; t += kLanes) {
      V even;
      V odd;
      hn::LoadInterleaved2(d, pairs + 2 * t, even, odd);
      const V c = hn::LoadU(d, cos + t);
      const V s = hn::LoadU(d, sin + t);
      const V rotated_even = hn::Sub(hn::Mul(even, c), hn::Mul(odd, s));
      const V rotated_odd = hn::Add(hn::Mul(odd, c), hn::Mul(even, s));
      hn::StoreInterleaved2(rotated_even, rotated_odd, d, pairs + 2 * t);
    }
#endif
    for (; t < half; ++t) {
      RotatePair(pairs + 2 * t, cos[t], sin[t]);
    }
  }
}

void Widen(DType dtype, const void* src, float scale, int64_t n, float* dst) {
  if (dtype == DType::kInt8) {
    WidenElements(Int8Element{scale}, static_cast<const int8_t*>(src), n, dst);
    return;
  }
  DispatchElement(dtype, [&](auto element) HWY_ATTR {
    WidenElements(element, static_cast<const typename decltype(element)::Stored*>(src), n, dst);
  });
}

void ExpArray(const float* x, int64_t n, float* y) {
  const Floats d;
  for (int64_t i = 0; i < n; i += kLanes) {
    float lanes[kLanes] = {};
    for (int64_t j = 0; j < kLanes && i + j < n; ++j) {
      lanes[j] = x[i + j];
    }
    hn::StoreU(Exp(hn::LoadU(d, lanes)), d, lanes);
    for (int64_t j = 0; j < kLanes && i + j < n; ++j) {
      y[i + j] = lanes[j];
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attnd::kernels
HWY_AFTER_NAMESPACE();

#endif
