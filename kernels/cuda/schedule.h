// How a ragged batch becomes work items for a fixed grid. An item is a tile of rows against one
// split of its sequence's keys; a sequence has tiles * splits of them, also where some see nothing.
// Plain data and arithmetic for both sides, and the host's way to the scheduling kernel.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention_params.h"
#include "kernels/cuda/element.cuh"

namespace attnd::kernels::cuda {

class Stream;

// A split that no sequence exceeds, all keys in one: positions of keys, and the work items of a
// batch, are below it.
inline constexpr int32_t kOneSplit = 1 << 30;

// How the rows of a sequence fall into tiles: for each KV head its rows * group pairs in units of
// `unit_rows`, the units of all heads in tiles of `units_per_tile`.
struct TileShape {
  int32_t heads_kv = 1;
  int32_t group = 1;
  int32_t unit_rows = 16;
  int32_t units_per_tile = 1;
};

ATTND_HOST_DEVICE int64_t TileCount(const TileShape& shape, int32_t rows) {
  const int32_t units =
      shape.heads_kv * ((rows * shape.group + shape.unit_rows - 1) / shape.unit_rows);
  return (units + shape.units_per_tile - 1) / shape.units_per_tile;
}

// Splits that [begin, end) touches; one when it is empty, so that its rows are written.
ATTND_HOST_DEVICE int64_t SplitCount(int64_t begin, int64_t end, int32_t split_keys) {
  const int32_t first = static_cast<int32_t>(begin);
  const int32_t last = static_cast<int32_t>(end - 1);
  return begin < end ? last / split_keys - first / split_keys + 1 : 1;
}

struct ScheduleParams {
  const SequenceView* sequences = nullptr;  // [num_sequences]
  Schedule schedule;
  TileShape tiles;
  int32_t num_sequences = 0;
  // A multiple of 64 for results that do not depend on the batch, kOneSplit for none; 0: chosen on
  // the device so that about `blocks` items (those that run at once) are of equal length. Chosen
  // splits keep to max_work; with given ones the host has to.
  int32_t split_keys = 0;
  int32_t blocks = 1;
};

// Fills work_begin and split_keys. One block.
void LaunchSchedule(Stream& stream, const ScheduleParams& params);

}  // namespace attnd::kernels::cuda
