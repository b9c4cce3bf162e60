// The shape of the absorbed MLA kernel: how a tile is cut up between warps and where its pieces lie
// in shared memory. Included by device and host code.
//
// A tile is `units` units of 16 rows. Two units are a pair, and a pair has four warps, each with a
// slice of a quarter of the latent columns: the queries of a slice stay in registers for the whole
// work item (64 of them at width 512) beside the output of the slice (128), and a fragment of
// latents read from shared memory serves 32 rows. Scores are summed over the slices through shared
// memory. The other way round (a warp has 16 rows, half of the columns and half of the keys'
// scores, queries in shared memory) reads shared memory twice as often as the tensor cores can use
// it.
#pragma once

#include <cstdint>

namespace attnd::kernels::cuda {

inline constexpr int kLatentUnitRows = 16;
inline constexpr int kLatentKeys = 32;  // of a key tile: half a page
inline constexpr int kLatentSlices = 4;
inline constexpr int kLatentRopeWidth = 64;
inline constexpr int kLatentMaxStages = 4;  // key tiles in shared memory, one of them at work

inline constexpr int kLatentWorkBytes = 256;

constexpr int LatentThreads(int units) { return units / 2 * kLatentSlices * 32; }

// Bytes of the pieces. Every one is a multiple of 128.
struct LatentShared {
  int keys = 0;     // latents of a key tile as they are cached
  int rope = 0;     // rope keys of a key tile, of all KV heads of the row tile
  int scales = 0;   // of a key tile, e4m3 only
  int wide = 0;     // a key tile in bf16, e4m3 only: made when the tile's turn comes
  int scores = 0;   // partial sums, float32: [pair][slice][32 rows][32 keys]
  int weights = 0;  // the tensor cores' element: [pair][32 rows][32 keys]
  int factors = 0;  // float32 by row: what the output is multiplied by
  int work = 0;     // what the block works on (LatentWork)
  int numbers = 0;  // for all threads

  constexpr int Total(int stages) const {
    return stages * (keys + rope + scales) + wide + scores + weights + factors + work + numbers;
  }
};

// `rope_heads`: KV heads that a row tile can touch.
constexpr LatentShared LatentSharedOf(bool e4m3, int width, int units, int rope_heads) {
  LatentShared shared;
  shared.keys = kLatentKeys * width * (e4m3 ? 1 : 2);
  shared.rope = rope_heads * kLatentKeys * kLatentRopeWidth * 2;
  shared.scales = e4m3 ? kLatentKeys * 4 : 0;
  shared.wide = e4m3 ? kLatentKeys * width * 2 : 0;
  shared.scores = units / 2 * kLatentSlices * 32 * kLatentKeys * 4;
  shared.weights = units / 2 * 32 * kLatentKeys * 2;
  shared.factors = (units * kLatentUnitRows * 4 + 127) / 128 * 128;
  shared.work = kLatentWorkBytes;
  shared.numbers = 128;
  return shared;
}

}  // namespace attnd::kernels::cuda
