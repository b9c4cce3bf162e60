// The constants of an instantiation, for the kernel and its launcher.
#pragma once

#include "kernels/cuda/attention_params.h"
#include "kernels/cuda/gqa/gqa.h"

namespace attnd::kernels::cuda {

class Stream;

inline constexpr int kTileKeys = 64;  // = tokens of a page

template <int kKeys, int kValues, GqaVariant kVariantOf>
struct GqaConfig {
  static constexpr GqaVariant kVariant = kVariantOf;
  static constexpr bool kDecode = kVariant == GqaVariant::kDecode;
  static constexpr int kKeyWidth = kKeys;
  static constexpr int kValueWidth = kValues;
  static constexpr int kWarps = 4;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kRows = kDecode ? 16 : 64;
  // Keys of a tile that one warp looks at.
  static constexpr int kWarpKeys = kDecode ? kTileKeys / kWarps : kTileKeys;

  // A stage holds keys and values of a tile: 16 KiB at 64/64, 32 at 128/128, 40 at 192/128.
  // Decoding is bound by loads and has 40 to 64 KiB of them in flight in a block; prefill is bound
  // by products and loads one tile while it works on another. All within the 99 KiB of sm_89.
  static constexpr int kStageElements = kTileKeys * (kKeyWidth + kValueWidth);
  static constexpr int kStages = !kDecode || kKeyWidth == 192 ? 2 : kKeyWidth == 128 ? 3 : 4;
  static constexpr int kStageBytes = 2 * kStageElements;

  // Where decoding warps meet: 16 rows of O each, 8 floats apart so that the 8-byte stores of a
  // half warp fall into different banks. Lies over the stages.
  static constexpr int kMergeStride = kValueWidth / 2 + 4;  // in pairs
  static constexpr int kMergePairs = kWarps * 16 * kMergeStride;

  // Bounds of each warp's rows, and whether the block came last.
  static constexpr int kNoteWords = 4 * kWarps;
  static constexpr int kSharedBytes = kStages * kStageBytes + 128;
  static_assert(kSharedBytes <= 99 * 1024);
  static_assert(kMergePairs * 8 + 2 * kWarps * 16 * 4 <= kStages * kStageBytes);
  static_assert(kNoteWords * 4 <= 128);
};

// Defined in gqa_kernel.cuh, instantiated in a file each.
template <typename E, int kKeyWidth, int kValueWidth, GqaVariant kVariant>
void LaunchGqaKernel(Stream& stream, const GqaParams& params, int grid);

}  // namespace attnd::kernels::cuda
