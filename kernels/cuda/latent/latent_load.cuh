// Key tiles of the absorbed MLA kernel on their way to shared memory.
#pragma once

#include "kernels/cuda/latent/latent_config.cuh"
#include "kernels/cuda/latent/latent_tile.cuh"

namespace attnd::kernels::cuda {

// Whether one of the rows sees `key`: if any, then the last that begins at or before it, for that
// one reaches farthest.
__device__ inline bool Sees(const LatentSource& source, int64_t key) {
  int64_t begins = 0;  // rows [0, begins) do
  int64_t above = source.rows;
  while (begins < above) {
    const int64_t middle = begins + (above - begins) / 2;
    if (source.lo[middle] <= key) {
      begins = middle + 1;
    } else {
      above = middle;
    }
  }
  return begins > 0 && key < source.hi[begins - 1];
}

// Bit i: a row sees the i-th key of tile `n`. All lanes of a warp call it together.
__device__ inline uint32_t SeenKeys(const LatentWork& work, int32_t n) {
  const int32_t key = n * kLatentKeys;
  if (work.seen_begin <= key && key + kLatentKeys <= work.seen_end) {
    return 0xffffffffu;
  }
  uint32_t seen = Sees(work.source, work.first_key + key + LaneIndex()) ? 1u << LaneIndex() : 0u;
  for (int mask = 16; mask > 0; mask /= 2) {
    seen |= ShuffleXor(seen, mask);
  }
  return seen;
}

__device__ inline int64_t PageOf(const LatentWork& work, int32_t n) {
  return work.source.pages[(work.first_key + n * kLatentKeys) / 64];
}

// Issues thread `thread`'s copies of 16-byte chunks [key][chunk], zeros for keys that no row sees
// and for chunks from `chunks` on: 0 times what lies there might be a NaN. `from` is key 0's row.
template <int kThreads, int kChunks, bool kSwizzle>
__device__ inline void CopyRows(int thread, Shared<uint16_t> to, const uint8_t* from,
                                int64_t stride, int32_t chunks, uint32_t seen) {
  constexpr int kRows = kThreads / kChunks;  // at a time
  const int key = thread / kChunks;
  const int chunk = thread % kChunks;
  const int index = (key * kChunks + (kSwizzle ? SwizzledChunk(key, chunk) : chunk)) * 8;
  const uint8_t* source = from + (chunk < chunks ? key * stride + chunk * 16 : 0);
  if (chunk >= chunks) {
    seen = 0;
  }
  seen >>= key;
#pragma unroll
  for (int i = 0; i < kLatentKeys / kRows; ++i) {
    constexpr int kXor = kSwizzle ? kRows : 0;
    CopyAsync16(to, (index ^ (i * kXor & 7) * 8) + i * kRows * kChunks * 8, source,
                (seen >> i * kRows & 1) != 0);
    source += kRows * stride;
  }
}

// Issues the copies of key tile `n`, which lies in the page at byte `page`, to a stage.
template <typename C>
__device__ inline void CopyKeyTile(const LatentLaunch& launch, const LatentArrays<C>& arrays,
                                   int32_t n, int64_t page, int stage) {
  const LatentParams& p = launch.params;
  const LatentWork work = LoadRecord<LatentWork>(arrays.work);
  const int thread = ThisThread().index;
  const uint32_t seen = SeenKeys(work, n);
  const int32_t slot = static_cast<int32_t>(work.first_key % 64 + n % 2 * kLatentKeys) % 64;
  // Where no row sees anything the table's entry may be anything.
  const uint8_t* base = p.batch.pool + (seen != 0 ? page : 0);
  CopyRows<C::kThreads, C::kRowBytes / 16, !C::kE4M3>(
      thread, arrays.keys.At(stage * arrays.kKeys), base + p.latent_offset + slot * p.latent_stride,
      p.latent_stride, p.d_latent * static_cast<int>(sizeof(typename C::Cache)) / 16, seen);
  const uint8_t* rope = base + p.rope_offset + slot * p.rope_stride;
#pragma unroll 1
  for (int head = 0; head < work.tile.heads; ++head) {
    CopyRows<C::kThreads, kLatentRopeWidth / 8, true>(
        thread, arrays.rope.At((stage * launch.rope_heads + head) * arrays.kRope),
        rope + int64_t{work.tile.first_head + head} * p.d_rope * 2, p.rope_stride, p.d_rope / 8,
        seen);
  }
  if constexpr (C::kE4M3) {
    const int i = thread;
    if (i < kLatentKeys / 4) {
      const bool valid = (seen >> 4 * i & 15) != 0;
      CopyAsync16(arrays.scales.At(stage * arrays.kScales), 8 * i,
                  base + p.scales + (slot + 4 * i) * 4, valid);
    }
  }
}

// e4m3 to bf16, exactly: the scales are left for scores and weights, where there are 18 times fewer
// numbers to multiply, and the latents get no second rounding.
template <typename C>
__device__ inline void WidenKeyTile(const LatentArrays<C>& arrays, int stage) {
  constexpr int kPieces = C::kWidth / 16;       // of a row
  constexpr int kRows = C::kThreads / kPieces;  // at a time
  const int thread = ThisThread().index;
  const int key = thread / kPieces;
  const int chunk = thread % kPieces * 2;
  // Eight lanes store at a time: four of them even chunks and four odd ones lie in all banks.
  const bool odd_first = (chunk & 8) != 0;
  const int row = key * kPieces * 2;
  const int first = row + SwizzledChunk(key, chunk + odd_first);
  const int second = row + SwizzledChunk(key, chunk + !odd_first);
  const Shared<Uint4> from = arrays.keys.At(stage * arrays.kKeys).template As<Uint4>();
  const Shared<Uint4> to = arrays.wide.template As<Uint4>();
#pragma unroll 2  // registers
  for (int i = 0; i < kLatentKeys / kRows; ++i) {
    const Uint4 packed = from.Load(i * C::kThreads + thread);
    const uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
    uint32_t wide[8];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      float x[4];
      UnpackE4M3(words[w], x);
      wide[2 * w] = Pack<BF16>(x[0], x[1]);
      wide[2 * w + 1] = Pack<BF16>(x[2], x[3]);
    }
    const Uint4 even = {wide[0], wide[1], wide[2], wide[3]};
    const Uint4 odd = {wide[4], wide[5], wide[6], wide[7]};
    const int flip = i * kRows & 7;  // the swizzle's of rows further on
    to.Store((first ^ flip) + i * kRows * kPieces * 2, odd_first ? odd : even);
    to.Store((second ^ flip) + i * kRows * kPieces * 2, odd_first ? even : odd);
  }
}

}  // namespace attnd::kernels::cuda
