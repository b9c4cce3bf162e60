// Rows in and out of what register tiles read: transposed, those of attention scaled.
#if defined(KERNELS_CPU_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KERNELS_CPU_PACK_INL_H_
#undef KERNELS_CPU_PACK_INL_H_
#else
#define KERNELS_CPU_PACK_INL_H_
#endif

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attnd::kernels {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
// Columns [k, k + 4) of four rows, transposed: lane l of column i at to[i * stride + l].
HWY_INLINE void TransposeFour(const float* const* rows, int64_t k, float scale, float* to,
                              int64_t stride) {
  const hn::Full128<float> d;
  const hn::Repartition<uint64_t, decltype(d)> pairs;
  const auto factor = hn::Set(d, scale);
  const auto a = hn::Mul(hn::LoadU(d, rows[0] + k), factor);
  const auto b = hn::Mul(hn::LoadU(d, rows[1] + k), factor);
  const auto c = hn::Mul(hn::LoadU(d, rows[2] + k), factor);
  const auto e = hn::Mul(hn::LoadU(d, rows[3] + k), factor);
  const auto ab_low = hn::BitCast(pairs, hn::InterleaveLower(d, a, b));
  const auto ab_high = hn::BitCast(pairs, hn::InterleaveUpper(d, a, b));
  const auto ce_low = hn::BitCast(pairs, hn::InterleaveLower(d, c, e));
  const auto ce_high = hn::BitCast(pairs, hn::InterleaveUpper(d, c, e));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, ab_low, ce_low)), d, to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, ab_low, ce_low)), d, to + stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, ab_high, ce_high)), d, to + 2 * stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, ab_high, ce_high)), d, to + 3 * stride);
}

// The same of two rows.
HWY_INLINE void TransposeTwo(const float* const* rows, int64_t k, float* to, int64_t stride) {
  const hn::Full128<float> d;
  const hn::Full64<float> half;
  const auto a = hn::LoadU(d, rows[0] + k);
  const auto b = hn::LoadU(d, rows[1] + k);
  const auto low = hn::InterleaveLower(d, a, b);
  const auto high = hn::InterleaveUpper(d, a, b);
  hn::StoreU(hn::LowerHalf(half, low), half, to);
  hn::StoreU(hn::UpperHalf(half, low), half, to + stride);
  hn::StoreU(hn::LowerHalf(half, high), half, to + 2 * stride);
  hn::StoreU(hn::UpperHalf(half, high), half, to + 3 * stride);
}
#endif

// Four columns at a time, so that the lines that are written stay in the first-level cache.
void PackPanel(const float* const* rows, int64_t width, float scale, float* panel) {
  int64_t k = 0;
#if HWY_TARGET != HWY_SCALAR
  for (; k + 4 <= width; k += 4) {
    for (int64_t lane = 0; lane < kPanel; lane += 4) {
      TransposeFour(rows + lane, k, scale, panel + k * kPanel + lane, kPanel);
    }
  }
#endif
  for (; k < width; ++k) {
    for (int64_t lane = 0; lane < kPanel; ++lane) {
      panel[k * kPanel + lane] = rows[lane][k] * scale;
    }
  }
}

// A few rows, `width` of each, as [k][stride].
HWY_INLINE void PackFew(const float* const* rows, int64_t count, int64_t width, float* to,
                        int64_t stride) {
  int64_t k = 0;
#if HWY_TARGET != HWY_SCALAR
  for (; k + 4 <= width; k += 4) {
    float* column = to + k * stride;
    int64_t m = 0;
    for (; m + 4 <= count; m += 4) {
      TransposeFour(rows + m, k, 1, column + m, stride);
    }
    for (; m + 2 <= count; m += 2) {
      TransposeTwo(rows + m, k, column + m, stride);
    }
    for (int64_t i = 0; m < count && i < 4; ++i) {
      column[i * stride + m] = rows[m][k + i];
    }
  }
#endif
  for (; k < width; ++k) {
    for (int64_t m = 0; m < count; ++m) {
      to[k * stride + m] = rows[m][k];
    }
  }
}

void Scale(const float* x, int64_t n, float factor, float* y) {
  const Floats d;
  const V by = hn::Set(d, factor);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, x + i), by), d, y + i);
  }
  for (; i < n; ++i) {
    y[i] = x[i] * factor;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attnd::kernels
HWY_AFTER_NAMESPACE();

#endif
