// Vectors of one instruction set: the tag, loads that widen, and exp. Included once per target.
#if defined(KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KERNELS_CPU_SIMD_INL_H_
#undef KERNELS_CPU_SIMD_INL_H_
#else
#define KERNELS_CPU_SIMD_INL_H_
#endif

#include <cstdint>
#include <limits>
#include <utility>

#include "hwy/highway.h"
#include "kernels/cpu/kernel_table.h"

HWY_BEFORE_NAMESPACE();
namespace attnd::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Never wider than a panel.
using Floats = hn::CappedTag<float, kPanel>;
using V = hn::Vec<Floats>;
inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(Floats()));
inline constexpr int kPanelVectors = static_cast<int>(kPanel) / kLanes;
// Accumulators that fit beside the operands: 16 registers, or 32.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
inline constexpr int kAccumulators = 24;
#else
inline constexpr int kAccumulators = 12;
#endif

struct F32Element {
  using Stored = float;
  static HWY_INLINE V Load(const float* p) { return hn::LoadU(Floats(), p); }
};

struct BF16Element {
  using Stored = uint16_t;
  static HWY_INLINE V Load(const uint16_t* p) {
    const hn::Rebind<uint16_t, Floats> narrow;
    const hn::RebindToUnsigned<Floats> wide;
    return hn::BitCast(Floats(), hn::ShiftLeft<16>(hn::PromoteTo(wide, hn::LoadU(narrow, p))));
  }
};

struct F16Element {
  using Stored = uint16_t;
  static HWY_INLINE V Load(const uint16_t* p) {
    const hn::Rebind<uint16_t, Floats> narrow;
#if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
    // Highway's own emulation makes 65536 of an infinity; this is the code of convert.cc.
    const Floats d;
    const hn::RebindToUnsigned<Floats> wide;
    const auto half = hn::PromoteTo(wide, hn::LoadU(narrow, p));
    const auto magnitude = hn::And(half, hn::Set(wide, 0x7fffu));
    const auto shifted = hn::ShiftLeft<13>(magnitude);
    const auto rebased = hn::BitCast(
        wide, hn::Mul(hn::BitCast(d, shifted), hn::BitCast(d, hn::Set(wide, 239u << 23))));
    const auto special = hn::Or(shifted, hn::Set(wide, 0x7f800000u));
    const auto is_special = hn::Gt(magnitude, hn::Set(wide, 0x7bffu));
    const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(wide, 0x8000u)));
    return hn::BitCast(d, hn::Or(sign, hn::IfThenElse(is_special, special, rebased)));
#else
    const hn::Rebind<hwy::float16_t, Floats> half;
    return hn::PromoteTo(Floats(), hn::BitCast(half, hn::LoadU(narrow, p)));
#endif
  }
};

// Of a row with this scale.
struct Int8Element {
  using Stored = int8_t;
  float scale = 1;
  HWY_INLINE V Load(const int8_t* p) const {
    const hn::Rebind<int8_t, Floats> narrow;
    const hn::RebindToSigned<Floats> wide;
    const V units = hn::ConvertTo(Floats(), hn::PromoteTo(wide, hn::LoadU(narrow, p)));
    return hn::Mul(units, hn::Set(Floats(), scale));
  }
};

// Calls f(element) with the element type of `dtype`, which has no scales.
template <typename F>
HWY_INLINE void DispatchElement(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kF32:
      return f(F32Element());
    case DType::kBF16:
      return f(BF16Element());
    case DType::kF16:
      return f(F16Element());
    case DType::kInt8:
    case DType::kFp8E4M3:
      return;
  }
}

template <typename E>
HWY_INLINE void WidenElements(const E& element, const typename E::Stored* src, int64_t n,
                              float* dst) {
  const Floats d;
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    const V a = element.Load(src + i);
    const V b = element.Load(src + i + kLanes);
    const V c = element.Load(src + i + 2 * kLanes);
    const V e = element.Load(src + i + 3 * kLanes);
    hn::StoreU(a, d, dst + i);
    hn::StoreU(b, d, dst + i + kLanes);
    hn::StoreU(c, d, dst + i + 2 * kLanes);
    hn::StoreU(e, d, dst + i + 3 * kLanes);
  }
  for (; i + kLanes <= n; i += kLanes) {
    hn::StoreU(element.Load(src + i), d, dst + i);
  }
  if (i < n) {
    typename E::Stored tail[kPanel] = {};
    float wide[kPanel];
    for (int64_t j = i; j < n; ++j) {
      tail[j - i] = src[j];
    }
    hn::StoreU(element.Load(tail), d, wide);
    for (int64_t j = i; j < n; ++j) {
      dst[j] = wide[j - i];
    }
  }
}

// e^x for x <= 0: 2^n * P(r), n = round(x / ln 2), |r| <= ln 2 / 2 by a two-part ln 2, P of
// degree 6 (Cephes expf). Within 2 ulp above -87; below, where results are under 2^-125 of the
// row's maximum, exactly 0, so that -infinity gives 0. exp(0) is exactly 1.
HWY_INLINE V Exp(V x) {
  const Floats d;
  const hn::RebindToUnsigned<Floats> bits;
  // Rounds to the nearest even integer, and has it in its lowest bits.
  const V shifter = hn::Set(d, 0x1.8p23f);
  const V shifted = hn::Add(hn::Mul(x, hn::Set(d, 1.44269504088896341f)), shifter);
  const V n = hn::Sub(shifted, shifter);
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  V p = hn::Set(d, 1.9875691500e-4f);
  p = hn::MulAdd(p, r, hn::Set(d, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
  p = hn::MulAdd(p, hn::Mul(r, r), hn::Add(r, hn::Set(d, 1.0f)));
  // The shift leaves n alone; from -126 on, which is what -87 gives, 2^n is normal.
  const V power = hn::BitCast(
      d, hn::Add(hn::ShiftLeft<23>(hn::BitCast(bits, shifted)), hn::Set(bits, 127u << 23)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.0f)), hn::Mul(p, power));
}

}  // namespace HWY_NAMESPACE
}  // namespace attnd::kernels
HWY_AFTER_NAMESPACE();

#endif
