#include "kernels/cpu/attention_plan.h"

#include <gtest/gtest.h>

#include <vector>

namespace attnd::kernels {
namespace {

struct Rows {
  std::vector<int64_t> lo, hi;
  AttentionSequence sequence;
  AttentionBatch Batch() {
    sequence.rows = static_cast<int64_t>(lo.size());
    AttentionBatch batch;
    batch.sequences = &sequence;
    batch.num_sequences = 1;
    batch.lo = lo.data();
    batch.hi = hi.data();
    return batch;
  }
};

TEST(AttentionPlanTest, ARunEndsWhereKeysAreMissing) {
  Rows rows{{0, 5, 8, 8, 30}, {5, 8, 8, 20, 40}, {}};
  const AttentionBatch batch = rows.Batch();
  const RowRun first = NextRun(batch, 0, 0);
  EXPECT_EQ(first.row_end, 4);
  EXPECT_EQ(first.key_begin, 0);
  EXPECT_EQ(first.key_end, 20);
  const RowRun second = NextRun(batch, 0, 4);
  EXPECT_EQ(second.row_end, 5);
  EXPECT_EQ(second.key_begin, 30);
  EXPECT_EQ(second.key_end, 40);
}

TEST(AttentionPlanTest, RowsThatSeeNothingJoinAnyRun) {
  Rows rows{{7, 7, 9}, {7, 9, 9}, {}};
  const RowRun run = NextRun(rows.Batch(), 0, 0);
  EXPECT_EQ(run.row_end, 3);
  EXPECT_EQ(run.key_begin, 7);
  EXPECT_EQ(run.key_end, 9);
  Rows blind{{4, 4}, {4, 4}, {}};
  const RowRun none = NextRun(blind.Batch(), 0, 0);
  EXPECT_EQ(none.row_end, 2);
  EXPECT_EQ(none.key_begin, none.key_end);
}

TEST(AttentionPlanTest, TilesCoverEveryPackedRowOnce) {
  for (const int64_t group : {1, 3, 16, 64, 100, 128}) {
    Rows rows;
    for (int64_t row = 0; row < 37; ++row) {
      rows.lo.push_back(row > 10 ? row - 10 : 0);
      rows.hi.push_back(row + 1);
    }
    const AttentionBatch batch = rows.Batch();
    const RowRun run = NextRun(batch, 0, 0);
    std::vector<AttentionTile> tiles(static_cast<size_t>(MaxTiles(37, 2, group)));
    const int64_t count = PlanTiles(batch, run, 2, group, tiles.data());
    ASSERT_LE(count, static_cast<int64_t>(tiles.size()));
    int64_t next[2] = {0, 0};
    for (int64_t i = 0; i < count; ++i) {
      const AttentionTile& tile = tiles[static_cast<size_t>(i)];
      EXPECT_EQ(tile.packed_begin, next[tile.kv_head]);
      EXPECT_LE(tile.rows, kTileRows);
      next[tile.kv_head] += tile.rows;
      const size_t first = static_cast<size_t>(tile.packed_begin / group);
      const size_t last = static_cast<size_t>((tile.packed_begin + tile.rows - 1) / group);
      EXPECT_EQ(tile.key_begin, rows.lo[first]);
      EXPECT_EQ(tile.key_end, rows.hi[last]);
    }
    EXPECT_EQ(next[0], 37 * group);
    EXPECT_EQ(next[1], 37 * group);
  }
}

}  // namespace
}  // namespace attnd::kernels
