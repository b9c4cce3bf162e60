// How a block finds out what a work item is.
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/schedule.h"

namespace attnd::kernels::cuda {

struct WorkItem {
  int32_t sequence = 0;
  int32_t tile = 0;
  int32_t split = 0;        // absolute: keys from split * split_keys
  int32_t first_split = 0;  // of the sequence
  int32_t first_slot = 0;   // work item of this tile's first split: names its arrivals and partials
};

// What of a tile's keys [lo, hi) is in an item, and which splits of the tile hold any.
struct TileSplits {
  int64_t begin = 0, end = 0;  // the item's keys; equal when none
  int32_t first = 0;           // absolute split
  int32_t count = 0;           // 0 when no row of the tile sees a key
};

__device__ inline int64_t WorkTotal(const BatchView& batch, const Schedule& schedule) {
  return schedule.work_begin[batch.num_sequences];
}

// The item `work` < WorkTotal().
__device__ inline WorkItem FindWork(const BatchView& batch, const Schedule& schedule,
                                    int64_t work) {
  // The last sequence that begins at or before it: sequences without rows have no work.
  int32_t sequence = 0;
  int32_t above = batch.num_sequences;
  while (above - sequence > 1) {
    const int32_t middle = sequence + (above - sequence) / 2;
    if (schedule.work_begin[middle] <= work) {
      sequence = middle;
    } else {
      above = middle;
    }
  }
  const SequenceView& view = batch.sequences[sequence];
  // 32 bits do from here on: device code divides 64 bits in a call that costs registers.
  const int32_t split_keys = schedule.split_keys[0];
  const int32_t splits = static_cast<int32_t>(SplitCount(view.key_begin, view.key_end, split_keys));
  const int32_t begin = static_cast<int32_t>(schedule.work_begin[sequence]);
  const int32_t local = static_cast<int32_t>(work) - begin;
  WorkItem item;
  item.sequence = sequence;
  item.tile = local / splits;
  item.first_split = static_cast<int32_t>(view.key_begin) / split_keys;
  item.split = item.first_split + local % splits;
  item.first_slot = begin + item.tile * splits;
  return item;
}

// A split without keys of the tile has nothing to do, but for the first of a tile that sees nothing
// at all: that writes the zeros.
__device__ inline bool HasWork(const WorkItem& item, const TileSplits& splits) {
  return splits.begin < splits.end || (splits.count == 0 && item.split == item.first_split);
}

__device__ inline TileSplits SplitTile(const WorkItem& item, int32_t split_keys, int64_t lo,
                                       int64_t hi) {
  TileSplits splits;
  if (lo < hi) {
    splits.first = static_cast<int32_t>(lo) / split_keys;
    splits.count = static_cast<int32_t>(hi - 1) / split_keys - splits.first + 1;
    const int64_t begin = int64_t{item.split} * split_keys;
    const int64_t end = begin + split_keys;
    splits.begin = lo > begin ? lo : begin;
    splits.end = hi < end ? hi : end;
    splits.end = splits.end > splits.begin ? splits.end : splits.begin;
  }
  return splits;
}

}  // namespace attnd::kernels::cuda
