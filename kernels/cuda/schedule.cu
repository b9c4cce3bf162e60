// The scheduling kernel: one block, sequences in equal shares to its threads.
#include "kernels/cuda/schedule.h"

#include "kernels/cuda/device.cuh"

namespace attnd::kernels::cuda {
namespace {

inline constexpr int kScheduleThreads = 256;
// A split that has been chosen is at least this long: writing and combining a partial of 16 rows
// costs as much as reading 16 to 32 keys.
inline constexpr int32_t kMinSplitKeys = 256;

// Inclusive prefix sums over the block; returns this thread's, and all in `total`.
__device__ inline int64_t BlockPrefixSum(Shared<int64_t> sums, int64_t value, int64_t* total) {
  const int thread = ThreadIndex();
  sums.Store(thread, value);
  SyncBlock();
  for (int step = 1; step < kScheduleThreads; step *= 2) {
    const int64_t before = thread >= step ? sums.Load(thread - step) : 0;
    value += before;
    SyncBlock();
    sums.Store(thread, value);
    SyncBlock();
  }
  *total = sums.Load(kScheduleThreads - 1);
  SyncBlock();
  return value;
}

// The sequences [begin, end) of a thread.
struct ScheduleShare {
  int32_t begin = 0, end = 0;
};

__device__ inline ScheduleShare ShareOfThread(int32_t num_sequences) {
  const int32_t share = (num_sequences + kScheduleThreads - 1) / kScheduleThreads;
  const int32_t begin = ThreadIndex() * share;
  return {begin < num_sequences ? begin : num_sequences,
          begin + share < num_sequences ? begin + share : num_sequences};
}

__device__ inline int64_t WorkOf(const ScheduleParams& p, int32_t sequence, int32_t split_keys) {
  const SequenceView& view = p.sequences[sequence];
  return TileCount(p.tiles, view.rows) * SplitCount(view.key_begin, view.key_end, split_keys);
}

__device__ inline int64_t WorkOfShare(const ScheduleParams& p, ScheduleShare share,
                                      int32_t split_keys) {
  int64_t work = 0;
  for (int32_t s = share.begin; s < share.end; ++s) {
    work += WorkOf(p, s, split_keys);
  }
  return work;
}

// Tiles times the pages of keys that their sequence spans.
__device__ inline int64_t PagesOfShare(const ScheduleParams& p, ScheduleShare share) {
  int64_t pages = 0;
  for (int32_t s = share.begin; s < share.end; ++s) {
    const SequenceView& view = p.sequences[s];
    if (view.key_begin < view.key_end) {
      pages += TileCount(p.tiles, view.rows) * SplitCount(view.key_begin, view.key_end, 64);
    }
  }
  return pages;
}

__device__ inline int32_t ChooseSplitKeys(const ScheduleParams& p, ScheduleShare share,
                                          Shared<int64_t> sums) {
  int64_t pages = 0;
  BlockPrefixSum(sums, PagesOfShare(p, share), &pages);
  const int64_t even = (pages + p.blocks - 1) / p.blocks * 64;
  int32_t split_keys = even < kMinSplitKeys ? kMinSplitKeys
                       : even < kOneSplit   ? static_cast<int32_t>(even)
                                            : kOneSplit;
  int64_t work = 0;
  BlockPrefixSum(sums, WorkOfShare(p, share, kOneSplit), &work);
  if (work > p.schedule.max_work) {
    return kOneSplit;  // more tiles than partials: enough work without splits
  }
  while (split_keys < kOneSplit) {
    BlockPrefixSum(sums, WorkOfShare(p, share, split_keys), &work);
    if (work <= p.schedule.max_work) {
      return split_keys;
    }
    split_keys *= 2;
  }
  return kOneSplit;
}

__global__ void __launch_bounds__(kScheduleThreads) ScheduleKernel(ScheduleParams p) {
  SharedCarver carver;
  const Shared<int64_t> sums = carver.Take<int64_t>(kScheduleThreads);
  const ScheduleShare share = ShareOfThread(p.num_sequences);
  const int32_t split_keys = p.split_keys > 0 ? p.split_keys : ChooseSplitKeys(p, share, sums);
  const int64_t own = WorkOfShare(p, share, split_keys);
  int64_t total = 0;
  int64_t work = BlockPrefixSum(sums, own, &total) - own;
  for (int32_t s = share.begin; s < share.end; ++s) {
    p.schedule.work_begin[s] = work;
    work += WorkOf(p, s, split_keys);
  }
  if (ThreadIndex() == 0) {
    p.schedule.work_begin[p.num_sequences] = total;
    p.schedule.split_keys[0] = split_keys;
  }
}

}  // namespace

void LaunchSchedule(Stream& stream, const ScheduleParams& params) {
  Launch(stream, ScheduleKernel, {1, 1, 1}, kScheduleThreads,
         kScheduleThreads * static_cast<int>(sizeof(int64_t)), params);
}

}  // namespace attnd::kernels::cuda
