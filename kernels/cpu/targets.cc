// The SIMD code, compiled once per instruction set, and the list of what this machine can run.
// Nothing is selected globally: a backend keeps the table that it was made with.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/targets.cc"
// SSSE3 adds nothing over SSE4 here; vectors of unknown length (SVE, RVV) do not fit the
// register tiles.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif
// The plain fallback also where the compiler's own baseline is better (aarch64): Highway's NEON
// wants AES, which not every such machine has.
#ifndef HWY_COMPILE_ALL_ATTAINABLE
#define HWY_COMPILE_ALL_ATTAINABLE
#endif
// clang-format off: foreach_target.h re-includes this file and must come first.
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/attention-inl.h"
#include "kernels/cpu/elementwise-inl.h"
#include "kernels/cpu/matmul-inl.h"
#include "kernels/cpu/pack-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace attnd::kernels {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3
inline constexpr const char* kName = "avx3";
#elif HWY_TARGET == HWY_AVX2
inline constexpr const char* kName = "avx2";
#elif HWY_TARGET == HWY_SSE4
inline constexpr const char* kName = "sse4";
#elif HWY_TARGET == HWY_NEON
inline constexpr const char* kName = "neon";
#else
inline constexpr const char* kName = "scalar";
#endif

const KernelTable* Table() {
  static constexpr KernelTable kTable{kName,  Project, Rope,  Widen,   PackPanel,
                                      Attend, Merge,   Scale, ExpArray};
  return &kTable;
}

}  // namespace HWY_NAMESPACE
}  // namespace attnd::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attnd::kernels {

std::vector<const KernelTable*> KernelTables() {
  std::vector<const KernelTable*> tables;
  const int64_t supported = static_cast<int64_t>(hwy::SupportedTargets());
  // A lower bit is a better target.
#if HWY_TARGETS & HWY_AVX3
  if ((supported & HWY_AVX3) != 0) tables.push_back(N_AVX3::Table());
#endif
#if HWY_TARGETS & HWY_AVX2
  if ((supported & HWY_AVX2) != 0) tables.push_back(N_AVX2::Table());
#endif
#if HWY_TARGETS & HWY_SSE4
  if ((supported & HWY_SSE4) != 0) tables.push_back(N_SSE4::Table());
#endif
#if HWY_TARGETS & HWY_NEON
  if ((supported & HWY_NEON) != 0) tables.push_back(N_NEON::Table());
#endif
#if HWY_TARGETS & HWY_EMU128
  tables.push_back(N_EMU128::Table());
#endif
#if HWY_TARGETS & HWY_SCALAR
  tables.push_back(N_SCALAR::Table());
#endif
  return tables;
}

}  // namespace attnd::kernels
#endif  // HWY_ONCE
