// Cuts a ragged batch into tiles of packed query rows.
//
// The G query heads of a KV head are packed as rows: packed row p of a run is query row
// row_begin + p / G, head kv_head * G + p % G. All rows of a tile attend to the same keys.
#pragma once

#include <cstdint>

#include "kernels/cpu/host_memory.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/params.h"

namespace attnd::kernels {

// Rows of one sequence whose intervals leave no gap: their union is one interval of keys, each
// seen by some row. Keys between two runs may be missing from the pool.
struct RowRun {
  int64_t sequence = 0;
  int64_t row_begin = 0;  // rows of the batch
  int64_t row_end = 0;
  int64_t key_begin = 0;  // equal to key_end when no row sees anything
  int64_t key_end = 0;
};

struct AttentionTile {
  int64_t sequence = 0;
  int64_t kv_head = 0;
  int64_t row_begin = 0;     // of its run
  int64_t packed_begin = 0;  // packed rows [packed_begin, packed_begin + rows) of its run
  int64_t rows = 0;          // <= kTileRows
  int64_t key_begin = 0;     // union of the rows' intervals
  int64_t key_end = 0;
};

// The run of `sequence` that begins at row `row` of the batch.
RowRun NextRun(const AttentionBatch& batch, int64_t sequence, int64_t row);

// Appends the tiles of a run, KV head by KV head; returns how many.
int64_t PlanTiles(const AttentionBatch& batch, const RowRun& run, int64_t heads_kv, int64_t group,
                  AttentionTile* tiles);

// Tiles that any batch of so many rows can need; -1 when that overflows.
constexpr int64_t MaxTiles(int64_t rows, int64_t heads_kv, int64_t group) {
  return CheckedProduct(heads_kv, CheckedProduct(rows, (group + kTileRows - 1) / kTileRows));
}

}  // namespace attnd::kernels
