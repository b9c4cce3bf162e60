// Keys and values of a tile from their page to shared memory. A row of the cache becomes a row of
// the template's width; of every 128 bytes the 16-byte chunk c of row r lies at c ^ (r % 8), so
// that neither the copies nor the matrix loads of 8 rows meet in a bank.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention_params.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/gqa/rows.cuh"

namespace attnd::kernels::cuda {

// Element index of chunk `chunk` (of 8 elements) in the 128 bytes `block` of a row.
template <int kWidth>
__device__ inline int Swizzled(int row, int block, int chunk) {
  return row * kWidth + block * 64 + (chunk ^ (row & 7)) * 8;
}

// The keys and values that a tile's rows see, page by page.
struct KeySource {
  const int64_t* pages = nullptr;  // [0] holds position 0
  Reach reach;
  int32_t head = 0;
};

__device__ inline KeySource SourceOf(const GqaParams& p, const SequenceView& view,
                                     const GqaTile& tile, const Reach& reach) {
  return {p.batch.pages + view.page_table + tile.origin / 64 - view.first_page, reach, tile.head};
}

// Which of `kCount` keys from `key`, `kStep` apart, a row of the tile sees, a bit each. The others
// hold anything, NaN too, and may have no page.
template <int kCount, int kStep>
__device__ inline uint32_t SeenKeys(const GqaParams& p, const GqaTile& tile, const Reach& reach,
                                    int32_t key) {
  uint32_t seen = 0;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int32_t at = key + i * kStep;
    seen |= (at >= reach.lo && at < reach.hi ? 1u : 0u) << i;
  }
  if (reach.gaps == 0) {
    return seen;
  }
  uint32_t by_rows = 0;
#pragma unroll 1
  for (int32_t row = tile.first_row; row <= tile.last_row; ++row) {
    const Interval interval = IntervalOf(p, tile, row);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int32_t at = key + i * kStep;
      by_rows |= (at >= interval.lo && at < interval.hi ? 1u : 0u) << i;
    }
  }
  return by_rows;
}

// One row's chunks `chunk` of each 128 bytes. Where not `seen`, or beyond `width`, zeros; `from` is
// then not read.
template <int kWidth>
__device__ inline void CopyRow(Shared<uint16_t> to, int row, int chunk, const uint8_t* from,
                               int width, bool seen, const uint8_t* aligned) {
#pragma unroll
  for (int block = 0; block < kWidth / 64; ++block) {
    const bool copied = seen && 64 * block + 8 * chunk < width;
    CopyAsync16(to, Swizzled<kWidth>(row, block, chunk),
                copied ? from + 128 * block + 16 * chunk : aligned, copied);
  }
}

// Issues the copies of rows [first, first + kRows) of the tile of keys at position `begin`, by
// kThreads threads of which this is number `thread`.
template <int kKeyWidth, int kValueWidth, int kRows, int kThreads>
__device__ inline void CopyTile(const GqaParams& p, const GqaTile& tile, const KeySource& source,
                                int64_t page, int32_t begin, Shared<uint16_t> keys,
                                Shared<uint16_t> values, int first, int thread) {
  constexpr int kStep = kThreads / 8;
  constexpr int kCount = kRows / kStep;
  const int row = first + thread / 8;
  const int chunk = thread % 8;
  const uint32_t seen = SeenKeys<kCount, kStep>(p, tile, source.reach, begin + row);
  const uint8_t* key = p.batch.pool + p.keys.offset + source.head * p.keys.head_step + page;
  const uint8_t* value = p.batch.pool + p.values.offset + source.head * p.values.head_step + page;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    CopyRow<kKeyWidth>(keys, row + i * kStep, chunk, key + (row + i * kStep) * p.keys.stride,
                       p.content_width + p.rope_width, (seen >> i & 1) != 0, p.batch.pool);
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    CopyRow<kValueWidth>(values, row + i * kStep, chunk,
                         value + (row + i * kStep) * p.values.stride, p.value_width,
                         (seen >> i & 1) != 0, p.batch.pool);
  }
}

}  // namespace attnd::kernels::cuda
