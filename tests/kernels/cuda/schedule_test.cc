// The scheduling kernel against the same arithmetic done plainly.
#include "kernels/cuda/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/cuda/device.cuh"

namespace attnd::kernels::cuda {
namespace {

struct Result {
  std::vector<int64_t> work_begin;
  int32_t split_keys = -1;
};

SequenceView View(int32_t rows, int64_t key_begin, int64_t key_end) {
  SequenceView view;
  view.rows = rows;
  view.key_begin = key_begin;
  view.key_end = key_end;
  return view;
}

Result Fill(const std::vector<SequenceView>& views, const TileShape& tiles, int32_t split_keys,
            int32_t blocks, int32_t max_work) {
  Result result;
  result.work_begin.assign(views.size() + 1, -1);
  ScheduleParams params;
  params.sequences = views.data();
  params.schedule.work_begin = result.work_begin.data();
  params.schedule.split_keys = &result.split_keys;
  params.schedule.max_work = max_work;
  params.tiles = tiles;
  params.num_sequences = static_cast<int32_t>(views.size());
  params.split_keys = split_keys;
  params.blocks = blocks;
  Stream stream;
  LaunchSchedule(stream, params);
  return result;
}

std::vector<int64_t> Want(const std::vector<SequenceView>& views, const TileShape& tiles,
                          int64_t split_keys) {
  std::vector<int64_t> work_begin = {0};
  for (const SequenceView& view : views) {
    int64_t units = 0;  // one by one
    for (int64_t pair = 0; pair < view.rows * tiles.group; pair += tiles.unit_rows) {
      units += tiles.heads_kv;
    }
    int64_t splits = 0;
    for (int64_t key = 0; key < view.key_end; key += split_keys) {
      splits += std::max(key, view.key_begin) < std::min(key + split_keys, view.key_end) ? 1 : 0;
    }
    const int64_t count = (units + tiles.units_per_tile - 1) / tiles.units_per_tile;
    work_begin.push_back(work_begin.back() + count * std::max<int64_t>(splits, 1));
  }
  return work_begin;
}

TEST(Schedule, CountsTilesTimesSplits) {
  std::mt19937 random(1);
  for (const size_t sequences : {0, 1, 2, 255, 256, 257, 700}) {
    std::vector<SequenceView> views;
    for (size_t i = 0; i < sequences; ++i) {
      const int64_t begin = random() % 500;
      views.push_back(View(static_cast<int32_t>(random() % 40), begin,
                           begin + static_cast<int64_t>(random() % 3 == 0 ? 0 : random() % 900)));
    }
    for (const TileShape& tiles :
         {TileShape{2, 3, 16, 1}, TileShape{8, 16, 16, 4}, TileShape{3, 5, 64, 2}}) {
      for (const int32_t split_keys : {64, 192, kOneSplit}) {
        const Result got = Fill(views, tiles, split_keys, 1, 0);
        EXPECT_EQ(got.work_begin, Want(views, tiles, split_keys)) << sequences;
        EXPECT_EQ(got.split_keys, split_keys);
      }
    }
  }
}

TEST(Schedule, CutsLongHistoriesForManyBlocks) {
  const TileShape tiles = {8, 16, 16, 1};
  // 8 tiles of 64 pages for 128 blocks: four pages to an item.
  EXPECT_EQ(Fill({View(1, 0, 4096)}, tiles, 0, 128, 4096).split_keys, 256);
  // The least: 256 keys.
  EXPECT_EQ(Fill({View(1, 0, 512)}, tiles, 0, 128, 4096).split_keys, 256);
  // As many tiles as blocks: no splits.
  const std::vector<SequenceView> many(16, View(1, 0, 4096));
  const Result whole = Fill(many, tiles, 0, 128, 4096);
  EXPECT_EQ(whole.work_begin.back(), 128);
  // One long among short ones is cut, the short ones are not.
  std::vector<SequenceView> ragged(15, View(1, 0, 1024));
  ragged.push_back(View(1, 0, 65536));
  const Result cut = Fill(ragged, tiles, 0, 128, 4096);
  EXPECT_EQ(cut.work_begin, Want(ragged, tiles, cut.split_keys));
  EXPECT_EQ(cut.work_begin[15], 15 * 8);
  EXPECT_GT(cut.work_begin[16] - cut.work_begin[15], 8 * 8);
}

TEST(Schedule, KeepsToThePartialsThatThereAre) {
  const TileShape tiles = {8, 16, 16, 1};
  for (const int32_t max_work : {8, 9, 15, 16, 40, 100}) {
    const std::vector<SequenceView> views = {View(1, 1000, 9000)};
    const Result got = Fill(views, tiles, 0, 128, max_work);
    EXPECT_LE(got.work_begin.back(), max_work);
    EXPECT_EQ(got.work_begin, Want(views, tiles, got.split_keys));
    EXPECT_EQ(got.split_keys % 64, 0);
  }
  // More tiles than partials: none is split, and none needs one.
  const std::vector<SequenceView> views(5, View(64, 0, 4096));
  const Result got = Fill(views, tiles, 0, 128, 16);
  EXPECT_EQ(got.split_keys, kOneSplit);
  EXPECT_EQ(got.work_begin.back(), 5 * 8 * 64);
}

}  // namespace
}  // namespace attnd::kernels::cuda
