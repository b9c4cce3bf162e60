#include "kernels/cpu/attention_plan.h"

#include <algorithm>

namespace attnd::kernels {
namespace {

// The union of the intervals of rows [begin, end), which have no gap between them.
void Union(const AttentionBatch& batch, int64_t begin, int64_t end, int64_t* key_begin,
           int64_t* key_end) {
  *key_begin = 0;
  *key_end = 0;
  for (int64_t row = begin; row < end; ++row) {
    if (batch.lo[row] < batch.hi[row]) {
      if (*key_begin == *key_end) {
        *key_begin = batch.lo[row];
      }
      *key_end = batch.hi[row];
    }
  }
}

}  // namespace

RowRun NextRun(const AttentionBatch& batch, int64_t sequence, int64_t row) {
  const AttentionSequence& rows = batch.sequences[sequence];
  RowRun run;
  run.sequence = sequence;
  run.row_begin = row;
  run.row_end = row;
  for (; run.row_end < rows.row_begin + rows.rows; ++run.row_end) {
    const int64_t lo = batch.lo[run.row_end];
    const int64_t hi = batch.hi[run.row_end];
    if (lo >= hi) {
      continue;
    }
    if (run.key_begin == run.key_end) {
      run.key_begin = lo;
    } else if (lo > run.key_end) {
      break;
    }
    run.key_end = hi;
  }
  return run;
}

int64_t PlanTiles(const AttentionBatch& batch, const RowRun& run, int64_t heads_kv, int64_t group,
                  AttentionTile* tiles) {
  const int64_t packed = (run.row_end - run.row_begin) * group;
  int64_t count = 0;
  for (int64_t head = 0; head < heads_kv; ++head) {
    for (int64_t begin = 0; begin < packed; begin += kTileRows) {
      AttentionTile& tile = tiles[count++];
      tile.sequence = run.sequence;
      tile.kv_head = head;
      tile.row_begin = run.row_begin;
      tile.packed_begin = begin;
      tile.rows = std::min(kTileRows, packed - begin);
      Union(batch, run.row_begin + begin / group,
            run.row_begin + (begin + tile.rows - 1) / group + 1, &tile.key_begin, &tile.key_end);
    }
  }
  return count;
}

}  // namespace attnd::kernels
