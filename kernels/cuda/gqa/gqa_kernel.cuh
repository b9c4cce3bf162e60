// The grouped-query attention kernel. A block takes work items: a tile of rows against a split of
// the keys. In the prefill variant each warp has 16 rows of the tile and all keys; in the decode
// variant all warps have the same 16 rows and each a quarter of every page, which it loads itself,
// so that warps meet only at the end.
//
// A row's bits depend on that row alone: tiles of keys and splits begin at absolute positions, keys
// that it does not see change no bit of (m, l, O), and warps and splits are added in fixed order.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention_params.h"
#include "kernels/cuda/combine.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/gqa/config.h"
#include "kernels/cuda/gqa/finish.cuh"
#include "kernels/cuda/gqa/load.cuh"
#include "kernels/cuda/gqa/rows.cuh"
#include "kernels/cuda/gqa/softmax.cuh"
#include "kernels/cuda/schedule.cuh"

namespace attnd::kernels::cuda {

// The stages of a block.
template <typename C>
struct GqaStages {
  Shared<uint16_t> all;

  __device__ Shared<uint16_t> Keys(int stage) const { return all.At(stage * C::kStageElements); }
  __device__ Shared<uint16_t> Values(int stage) const {
    return all.At(stage * C::kStageElements + kTileKeys * C::kKeyWidth);
  }
};

// Feeds the stages with the tiles [next, end) in order; every call of Load() commits a group, also
// when there is nothing left to load, so that the waits count.
template <typename C>
struct GqaLoader {
  KeySource source;
  int64_t page = 0;  // of tile `next`: looked up one call ahead
  int32_t next = 0;
  int32_t end = 0;
  int stage = 0;

  __device__ void LookUp() {
    if (next < end) {
      page = source.pages[next];
    }
  }

  __device__ void Load(const GqaParams& p, const GqaTile& tile, const GqaStages<C>& stages) {
    if (next < end) {
      constexpr int kLoaders = C::kDecode ? 32 : C::kThreads;
      CopyTile<C::kKeyWidth, C::kValueWidth, C::kWarpKeys, kLoaders>(
          p, tile, source, page, next * kTileKeys, stages.Keys(stage), stages.Values(stage),
          C::kDecode ? WarpIndex() * C::kWarpKeys : 0, ThreadIndex() % kLoaders);
      ++next;
      stage = stage + 1 < C::kStages ? stage + 1 : 0;
      LookUp();
    }
    CopyAsyncCommit();
  }
};

// All of a work item's keys, taken into the state.
template <typename E, typename C>
__device__ inline void AttendItem(const GqaParams& p, const GqaTile& tile, const WarpRows& rows,
                                  const uint32_t (&query)[C::kKeyWidth / 16][4],
                                  const GqaStages<C>& stages, GqaLoader<C>& loader,
                                  SoftmaxState<C::kValueWidth>& state) {
  const int first = C::kDecode ? WarpIndex() * C::kWarpKeys : 0;
  const int32_t end = loader.end;
  int32_t page = loader.next;
  loader.LookUp();
  for (int i = 0; i < C::kStages - 1; ++i) {
    loader.Load(p, tile, stages);
  }
  for (int stage = 0; page < end; ++page) {
    CopyAsyncWait<C::kStages - 2>();
    // What the others copied is there, and they are done with the stage that is filled next.
    if constexpr (C::kDecode) {
      SyncWarp();
    } else {
      SyncBlock();
    }
    loader.Load(p, tile, stages);
    Attend<E, C::kKeyWidth, C::kValueWidth, C::kWarpKeys>(
        rows, query, stages.Keys(stage), stages.Values(stage), first, page * kTileKeys + first,
        p.scale_log2, state);
    stage = stage + 1 < C::kStages ? stage + 1 : 0;
  }
  CopyAsyncWait<0>();
}

template <typename E, typename C>
__device__ inline void RunItem(const GqaParams& p, const WorkItem& item, const GqaStages<C>& stages,
                               Shared<int32_t> notes) {
  const SequenceView view = p.batch.sequences[item.sequence];
  const GqaTile tile = TileOf(p, view, item.tile, C::kRows);
  const int first_row = C::kDecode ? 0 : 16 * WarpIndex();
  const WarpRows rows = RowsOfWarp(p, view, tile, first_row);
  const Reach reach = ReachOfBlock<C::kWarps>(rows.reach, notes);
  const TileSplits splits =
      SplitTile(item, p.schedule.split_keys[0], tile.origin + reach.lo, tile.origin + reach.hi);
  // State is set up by the first launch and turned into the output by the last, with keys or
  // without.
  const bool has_work = p.carry == nullptr
                            ? HasWork(item, splits)
                            : splits.begin < splits.end || p.carry_first || p.carry_last;
  if (!has_work) {
    return;
  }
  uint32_t query[C::kKeyWidth / 16][4];
  LoadQuery<E, C::kKeyWidth>(p, view, tile, first_row, query);
  SoftmaxState<C::kValueWidth> state;
  state.Clear();
  if constexpr (!C::kDecode) {
    if (p.carry != nullptr && !p.carry_first) {
      LoadCarry(p, view, tile, state);
    }
  }
  GqaLoader<C> loader;
  loader.source = SourceOf(p, view, tile, reach);
  if (splits.begin < splits.end) {
    loader.next = static_cast<int32_t>((splits.begin - tile.origin) / kTileKeys);
    loader.end = static_cast<int32_t>((splits.end - tile.origin + kTileKeys - 1) / kTileKeys);
  }
  AttendItem<E, C>(p, tile, rows, query, stages, loader, state);
  FinishItem<C>(p, view, tile, item, splits, state, notes);
}

template <typename E, int kKeyWidth, int kValueWidth, GqaVariant kVariant>
__global__ void __launch_bounds__(128, 2) GqaKernel(GqaParams p) {
  using C = GqaConfig<kKeyWidth, kValueWidth, kVariant>;
  SharedCarver carver;
  const GqaStages<C> stages{carver.Take<uint16_t>(C::kStages * C::kStageElements)};
  const Shared<int32_t> notes = carver.Take<int32_t>(C::kNoteWords);
  const int64_t total = WorkTotal(p.batch, p.schedule);
  for (int64_t work = BlockIndex().x; work < total; work += GridSize().x) {
    RunItem<E, C>(p, FindWork(p.batch, p.schedule, work), stages, notes);
  }
}

template <typename E, int kKeyWidth, int kValueWidth, GqaVariant kVariant>
void LaunchGqaKernel(Stream& stream, const GqaParams& params, int grid) {
  using C = GqaConfig<kKeyWidth, kValueWidth, kVariant>;
  Launch(stream, GqaKernel<E, kKeyWidth, kValueWidth, kVariant>, {grid, 1, 1}, C::kThreads,
         C::kSharedBytes, params);
}

}  // namespace attnd::kernels::cuda
