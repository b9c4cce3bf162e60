// The rows of a tile: which pair (row, query head) each is, and what it sees. Positions of keys are
// relative to the page that holds the sequence's first key, so that 32 bits do.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention_params.h"
#include "kernels/cuda/device.cuh"

namespace attnd::kernels::cuda {

// A tile's place in its sequence.
struct GqaTile {
  int64_t origin = 0;  // position of the keys' first page
  int32_t head = 0;    // KV head
  int32_t first_pair = 0;
  int32_t pairs = 0;      // of the sequence and head: those beyond are padding
  int32_t first_row = 0;  // of the tile, in the batch; last_row is the last of them
  int32_t last_row = 0;
};

// Late rows see most, so their tiles come first. Heads are innermost.
__device__ inline GqaTile TileOf(const GqaParams& p, const SequenceView& view, int32_t tile,
                                 int32_t tile_rows) {
  GqaTile t;
  t.origin = view.key_begin / 64 * 64;
  t.pairs = view.rows * p.group;
  const int32_t row_tiles = (t.pairs + tile_rows - 1) / tile_rows;
  t.head = tile % p.heads_kv;
  t.first_pair = (row_tiles - 1 - tile / p.heads_kv) * tile_rows;
  const int32_t end = t.first_pair + tile_rows < t.pairs ? t.first_pair + tile_rows : t.pairs;
  t.first_row = view.row_begin + t.first_pair / p.group;
  t.last_row = view.row_begin + (end - 1) / p.group;
  return t;
}

// The place of a pair of the tile's head in [rows][heads_kv * group]; -1 for padding.
__device__ inline int64_t PairIndex(const GqaParams& p, const SequenceView& view,
                                    const GqaTile& tile, int32_t row_of_tile) {
  const int32_t pair = tile.first_pair + row_of_tile;
  if (pair >= tile.pairs) {
    return -1;
  }
  const int64_t row = view.row_begin + pair / p.group;
  return (row * p.heads_kv + tile.head) * p.group + pair % p.group;
}

// Keys [lo, hi), relative. A row that sees none has [0, 0), padding has all: it masks nothing.
struct Interval {
  int32_t lo = 0;
  int32_t hi = INT32_MAX;
};

__device__ inline Interval IntervalOf(const GqaParams& p, const GqaTile& tile, int64_t row) {
  int64_t lo = p.batch.lo[row];
  int64_t hi = p.batch.hi[row];
  if (p.carry != nullptr) {
    lo = lo > p.carry_begin ? lo : p.carry_begin;
    hi = hi < p.carry_end ? hi : p.carry_end;
  }
  if (lo >= hi) {
    return {0, 0};
  }
  return {static_cast<int32_t>(lo - tile.origin), static_cast<int32_t>(hi - tile.origin)};
}

// Whether keys between those of this row and of the rows before it may be seen by no row: they must
// not be loaded then. An empty row says nothing about those before it: assume it.
__device__ inline bool GapBefore(const BatchView& batch, const GqaTile& tile, int64_t row) {
  return row > tile.first_row && batch.lo[row] < batch.hi[row] &&
         (batch.lo[row - 1] >= batch.hi[row - 1] || batch.hi[row - 1] < batch.lo[row]);
}

// What rows see together.
struct Reach {
  int32_t lo = INT32_MAX;  // keys [lo, hi) hold all that some row sees; lo >= hi: none
  int32_t hi = 0;
  int32_t gaps = 0;  // whether keys within may be seen by none
};

__device__ inline Reach Union(const Reach& a, const Reach& b) {
  return {a.lo < b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi, a.gaps | b.gaps};
}

// The two rows of a lane, lane / 4 and 8 more in the 16 of a warp, and what the warp's see.
struct WarpRows {
  Interval interval[2];
  Reach reach;
  Interval full;  // keys that every row sees: no mask is needed
};

__device__ inline WarpRows RowsOfWarp(const GqaParams& p, const SequenceView& view,
                                      const GqaTile& tile, int32_t first_row_of_tile) {
  WarpRows rows;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int32_t row_of_tile = first_row_of_tile + LaneIndex() / 4 + 8 * i;
    if (tile.first_pair + row_of_tile >= tile.pairs) {
      continue;
    }
    const int64_t row = view.row_begin + (tile.first_pair + row_of_tile) / p.group;
    const Interval interval = IntervalOf(p, tile, row);
    rows.interval[i] = interval;
    if (interval.lo < interval.hi) {
      rows.reach =
          Union(rows.reach, {interval.lo, interval.hi, GapBefore(p.batch, tile, row) ? 1 : 0});
    }
    rows.full.lo = interval.lo > rows.full.lo ? interval.lo : rows.full.lo;
    rows.full.hi = interval.hi < rows.full.hi ? interval.hi : rows.full.hi;
  }
#pragma unroll
  for (int mask = 4; mask < 32; mask *= 2) {
    rows.reach =
        Union(rows.reach, {ShuffleXor(rows.reach.lo, mask), ShuffleXor(rows.reach.hi, mask),
                           ShuffleXor(rows.reach.gaps, mask)});
    const int32_t lo = ShuffleXor(rows.full.lo, mask);
    const int32_t hi = ShuffleXor(rows.full.hi, mask);
    rows.full.lo = lo > rows.full.lo ? lo : rows.full.lo;
    rows.full.hi = hi < rows.full.hi ? hi : rows.full.hi;
  }
  return rows;
}

// What the rows of all warps see. Separates the uses of shared memory by two work items.
template <int kWarps>
__device__ inline Reach ReachOfBlock(const Reach& warp, Shared<int32_t> notes) {
  SyncBlock();
  if (LaneIndex() == 0) {
    notes.Store(3 * WarpIndex(), warp.lo);
    notes.Store(3 * WarpIndex() + 1, warp.hi);
    notes.Store(3 * WarpIndex() + 2, warp.gaps);
  }
  SyncBlock();
  Reach reach;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    reach = Union(reach, {notes.Load(3 * w), notes.Load(3 * w + 1), notes.Load(3 * w + 2)});
  }
  return reach;
}

}  // namespace attnd::kernels::cuda
