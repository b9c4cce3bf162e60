// Which rows a tile of the absorbed MLA kernel holds.
#pragma once

#include "kernels/cuda/attention_params.h"
#include "kernels/cuda/latent/latent_shape.h"
#include "kernels/cuda/schedule.cuh"

namespace attnd::kernels::cuda {

// Units of a sequence are counted KV head by KV head, so that a tile touches few of them: each
// brings its rope keys.
struct LatentTile {
  int32_t row_begin = 0;  // of the sequence, in the batch
  int32_t rows = 0;
  int32_t units_per_head = 0;
  int32_t first_unit = 0;
  int32_t units = 0;       // of the tile that hold rows
  int32_t first_head = 0;  // KV heads of the tile: rope keys are loaded for these
  int32_t heads = 0;
  int32_t first_row = 0;  // rows of the sequence that the tile touches, and perhaps more between
  int32_t last_row = 0;
};

// A row of the tile: a row of the sequence and a query head.
struct LatentRow {
  int64_t place = -1;  // of the query's and the output's rows; -1: no such row
  int64_t lo = 0;
  int64_t hi = 0;
};

__device__ inline LatentTile TileOf(const LatentParams& p, int32_t sequence, int32_t tile,
                                    int tile_units) {
  LatentTile result;
  const SequenceView& view = p.batch.sequences[sequence];
  const int32_t rows = view.rows;
  result.row_begin = view.row_begin;
  result.rows = rows;
  const int32_t per_head = (rows * p.group + kLatentUnitRows - 1) / kLatentUnitRows;
  result.units_per_head = per_head;
  result.first_unit = tile * tile_units;
  const int32_t left = p.heads_kv * per_head - result.first_unit;
  result.units = left < tile_units ? left : tile_units;
  if (result.units <= 0) {
    return result;  // a sequence without rows
  }
  const int32_t last_unit = result.first_unit + result.units - 1;
  result.first_head = result.first_unit / per_head;
  result.heads = last_unit / per_head - result.first_head + 1;
  result.last_row = rows - 1;
  if (result.heads == 1) {
    result.first_row = result.first_unit % per_head * kLatentUnitRows / p.group;
    const int32_t last = (last_unit % per_head * kLatentUnitRows + kLatentUnitRows - 1) / p.group;
    result.last_row = last < rows ? last : rows - 1;
  }
  return result;
}

// Row `index` of the tile.
__device__ inline LatentRow RowOf(const LatentParams& p, const LatentTile& tile, int index) {
  LatentRow result;
  const int32_t unit = tile.first_unit + index / kLatentUnitRows;
  const int32_t head = unit / tile.units_per_head;
  const int32_t pair = unit % tile.units_per_head * kLatentUnitRows + index % kLatentUnitRows;
  const int32_t row = pair / p.group;
  if (index / kLatentUnitRows >= tile.units || row >= tile.rows) {
    return result;
  }
  const int64_t batch_row = int64_t{tile.row_begin} + row;
  result.place = batch_row * (p.heads_kv * p.group) + head * p.group + pair % p.group;
  result.lo = p.batch.lo[batch_row];
  result.hi = p.batch.hi[batch_row];
  return result;
}

// The keys of a tile.
struct LatentSource {
  const int64_t* pages = nullptr;  // that of token t at t / 64
  const int64_t* lo = nullptr;     // of the rows that the tile touches
  const int64_t* hi = nullptr;
  int64_t rows = 0;
};

__device__ inline LatentSource SourceOf(const LatentParams& p, int32_t sequence,
                                        const LatentTile& tile) {
  const SequenceView& view = p.batch.sequences[sequence];
  const int64_t row = int64_t{tile.row_begin} + tile.first_row;
  return {p.batch.pages + (view.page_table - view.first_page), p.batch.lo + row, p.batch.hi + row,
          tile.last_row - tile.first_row + 1};
}

// What a block works on, and the key tiles that it walks through.
struct LatentWork {
  WorkItem item;
  TileSplits splits;
  LatentTile tile;
  LatentSource source;
  int64_t first_key = 0;
  int32_t tiles = 0;
  // Counted from first_key. The last row sees the keys [seen_begin, seen_end), so that tiles inside
  // are copied without a look at the rows; all rows see [seen_begin, all_end): no mask.
  int32_t seen_begin = 0;
  int32_t seen_end = 0;
  int32_t all_end = 0;
};
static_assert(sizeof(LatentWork) <= kLatentWorkBytes);

// `bound` counted from key `first`; beyond an item's keys it does not matter by how much.
__device__ inline int32_t Relative(int64_t bound, int64_t first) {
  const int64_t relative = bound - first;
  return relative < 0 ? 0 : static_cast<int32_t>(relative < kOneSplit ? relative : kOneSplit);
}

__device__ inline LatentWork WorkOf(const LatentParams& p, int64_t index, int tile_units) {
  LatentWork work;
  work.item = FindWork(p.batch, p.schedule, index);
  work.tile = TileOf(p, work.item.sequence, work.item.tile, tile_units);
  work.source = SourceOf(p, work.item.sequence, work.tile);
  const int64_t last = work.source.rows - 1;
  // The first row may be an empty interval below all keys that are seen, the last one above.
  const SequenceView& view = p.batch.sequences[work.item.sequence];
  const int64_t lo = work.source.lo[0];
  const int64_t hi = work.source.hi[last];
  work.splits =
      SplitTile(work.item, p.schedule.split_keys[0], lo > view.key_begin ? lo : view.key_begin,
                hi < view.key_end ? hi : view.key_end);
  if (work.splits.begin < work.splits.end) {
    work.first_key = work.splits.begin / kLatentKeys * kLatentKeys;
    work.tiles =
        static_cast<int32_t>((work.splits.end - work.first_key + kLatentKeys - 1) / kLatentKeys);
  }
  work.seen_begin = Relative(work.source.lo[last], work.first_key);
  work.seen_end = Relative(work.source.hi[last], work.first_key);
  // Neither bound ever decreases from row to row.
  work.all_end = Relative(work.source.hi[0], work.first_key);
  return work;
}

// The rope keys' place in a stage of the tile's unit `unit`. One beyond the tile's units has no
// queries and takes those of the last.
__device__ inline int32_t RopeSlot(const LatentTile& tile, int unit) {
  const int32_t last = tile.units - 1;
  return (tile.first_unit + (unit < last ? unit : last)) / tile.units_per_head - tile.first_head;
}

}  // namespace attnd::kernels::cuda
