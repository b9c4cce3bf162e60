// The absorbed MLA kernel: a block takes work items, tiles of rows against splits of keys, and
// walks through an item's keys 32 at a time while the next ones are on their way.
#pragma once

#include "kernels/cuda/combine.cuh"
#include "kernels/cuda/latent/latent_compute.cuh"
#include "kernels/cuda/latent/latent_config.cuh"
#include "kernels/cuda/latent/latent_load.cuh"
#include "kernels/cuda/latent/latent_tile.cuh"
#include "kernels/cuda/schedule.cuh"

namespace attnd::kernels::cuda {

// Waits for the oldest of the `stages` - 1 groups of copies.
__device__ inline void WaitForStage(int stages) {
  static_assert(kLatentMaxStages == 4);
  if (stages == 2) {
    CopyAsyncWait<0>();
  } else if (stages == 3) {
    CopyAsyncWait<1>();
  } else {
    CopyAsyncWait<2>();
  }
}

// Whether a pair has rows: warps of another only copy.
template <typename C>
__device__ inline bool HasRows(const LatentArrays<C>& arrays, const LatentThread& thread) {
  return 2 * thread.pair < LoadRecord<LatentWork>(arrays.work).tile.units;
}

// The keys of a work item, from copies to the output. Each tile has three barriers: its latents are
// there, its partial scores are, its weights are.
template <typename C>
__device__ inline void WalkKeys(const LatentLaunch& launch, const LatentArrays<C>& arrays,
                                const LatentQueries<C>& queries, LatentState& state,
                                LatentOutput<C>& output) {
  const int stages = launch.stages;
  const int32_t tiles = LoadRecord<LatentWork>(arrays.work).tiles;
  for (int n = 0; n < stages - 1; ++n) {
    if (n < tiles) {
      CopyKeyTile(launch, arrays, n, PageOf(LoadRecord<LatentWork>(arrays.work), n), n);
    }
    CopyAsyncCommit();
  }
  // Where the next tile to be copied lies is read a tile earlier: the copies do not wait for it.
  int64_t page = 0;
  if (stages - 1 < tiles) {
    page = PageOf(LoadRecord<LatentWork>(arrays.work), stages - 1);
  }
  int stage = 0;
  for (int32_t n = 0; n < LoadRecord<LatentWork>(arrays.work).tiles; ++n) {
    WaitForStage(stages);
    SyncBlock();
    const int32_t next = n + stages - 1;
    const int32_t end = LoadRecord<LatentWork>(arrays.work).tiles;
    if (next < end) {
      CopyKeyTile(launch, arrays, next, page, stage > 0 ? stage - 1 : stages - 1);
    }
    CopyAsyncCommit();
    if (next + 1 < end) {
      page = PageOf(LoadRecord<LatentWork>(arrays.work), next + 1);
    }
    Shared<uint16_t> latents = arrays.keys.At(stage * arrays.kKeys);
    Shared<float> scales;
    if constexpr (C::kE4M3) {
      WidenKeyTile(arrays, stage);
      SyncBlock();
      latents = arrays.wide;
      scales = arrays.scales.At(stage * arrays.kScales).template As<float>();
    }
    if (const LatentThread thread = ThisThread(); HasRows(arrays, thread)) {
      PartialScores(arrays, latents, arrays.rope.At(stage * launch.rope_heads * arrays.kRope),
                    scales, thread, launch.params.d_rope, queries);
    }
    SyncBlock();
    if (const LatentThread thread = ThisThread(); HasRows(arrays, thread)) {
      Weigh(launch.params, arrays, scales, thread, n * kLatentKeys, state);
    }
    SyncBlock();
    if (const LatentThread thread = ThisThread(); HasRows(arrays, thread)) {
      Rescale(arrays, thread, output);
      AddWeighted(arrays, latents, thread, output);
    }
    stage = stage + 1 < stages ? stage + 1 : 0;
  }
}

// Calls write(row of the tile, column, two values) for what a warp has of the output.
template <typename C, typename Write>
__device__ inline void ForOutput(const LatentThread& thread, const LatentOutput<C>& output,
                                 int32_t width, const Write& write) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = thread.pair * 32 + 8 * i + thread.lane / 4;
    float* to = write(row);
    if (to == nullptr) {
      continue;
    }
#pragma unroll
    for (int n = 0; n < 2 * C::kSteps; ++n) {
      const int column = thread.slice * C::kSliceWidth + 8 * n + 2 * (thread.lane % 4);
      if (column < width) {
        const float* values = &output.values[i / 2][n][i % 2 * 2];
        *reinterpret_cast<FloatPair*>(to + column) = {values[0], values[1]};
      }
    }
  }
}

// Where the output of row `row` of the tile goes; null: no such row.
__device__ inline float* OutputRow(const LatentParams& p, const LatentTile& tile, int row) {
  const int64_t place = RowOf(p, tile, row).place;
  return place < 0 ? nullptr : p.output + place * p.d_latent;
}

// The only split of a tile: rows are divided by their sums and written.
template <typename C>
__device__ inline void WriteRows(const LatentParams& p, const LatentArrays<C>& arrays,
                                 const LatentTile& tile, const LatentThread& thread, float sum,
                                 LatentOutput<C>& output) {
  SyncBlock();  // the last tile's factors have been read
  if (thread.lane % 4 == 0) {
    arrays.factors.Store(thread.pair * 32 + StateRow(thread), Normalizer(sum));
  }
  SyncBlock();
  Rescale(arrays, thread, output);
  ForOutput(thread, output, p.d_latent, [&](int row) { return OutputRow(p, tile, row); });
}

// One split of several: the block that comes last puts them together.
template <typename C>
__device__ inline void WritePartial(const LatentParams& p, const LatentArrays<C>& arrays,
                                    const LatentWork& work, const LatentThread& thread,
                                    float maximum, float sum, const LatentOutput<C>& output) {
  const Partials partials =
      PartialsOf(p.schedule, work.item, work.splits, C::kTileRows, p.d_latent);
  const int64_t split = work.item.split - work.splits.first;
  if (HasRows(arrays, thread)) {
    if (thread.lane % 4 == 0) {
      float* to = partials.Row(split, thread.pair * 32 + StateRow(thread));
      to[0] = maximum;
      to[1] = sum;
    }
    ForOutput(thread, output, p.d_latent, [&](int row) { return partials.Row(split, row) + 2; });
  }
  if (ArriveLast(p.schedule, work.item, work.splits, arrays.flag)) {
    CombineTile(partials, work.splits.count, C::kWarps,
                [&](int32_t row) { return OutputRow(p, work.tile, row); });
  }
}

template <typename C>
__device__ inline void AttendItem(const LatentLaunch& launch, const LatentArrays<C>& arrays) {
  const LatentParams& p = launch.params;
  LatentQueries<C> queries;
  LatentState state;
  {
    const LatentWork work = LoadRecord<LatentWork>(arrays.work);
    const LatentThread thread = ThisThread();
    LoadQueries<C>(p, work.tile, thread, queries);
  }
  LatentOutput<C> output = {};
  WalkKeys(launch, arrays, queries, state, output);
  float sum = state.sum;
  sum += ShuffleXor(sum, 1);
  sum += ShuffleXor(sum, 2);
  const LatentWork work = LoadRecord<LatentWork>(arrays.work);
  const LatentThread thread = ThisThread();
  if (work.splits.count <= 1) {
    WriteRows(p, arrays, work.tile, thread, sum, output);
  } else {
    WritePartial(p, arrays, work, thread, state.maximum, sum, output);
  }
}

template <typename C>
__global__ void __launch_bounds__(C::kThreads, 1) LatentKernel(LatentLaunch launch) {
  const LatentArrays<C> arrays = LatentArrays<C>::Take(launch);
  const LatentParams& p = launch.params;
  const int64_t total = WorkTotal(p.batch, p.schedule);
  for (int64_t index = BlockIndex().x; index < total; index += GridSize().x) {
    if (ThreadIndex() == 0) {
      const LatentWork work = WorkOf(p, index, C::kUnits);
      StoreRecord(arrays.work, work);
      for (int unit = 0; unit < C::kUnits; ++unit) {
        arrays.rope_slots.Store(unit, RopeSlot(work.tile, unit));
      }
    }
    SyncBlock();
    const LatentWork work = LoadRecord<LatentWork>(arrays.work);
    if (HasWork(work.item, work.splits)) {
      AttendItem<C>(launch, arrays);
    }
    SyncBlock();  // shared memory is free for the next item
  }
}

}  // namespace attnd::kernels::cuda
