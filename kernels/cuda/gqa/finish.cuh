// What becomes of a tile's state when its keys are through: the output, a partial for the block
// that comes last, or state for the launch over the next block of the history.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention_params.h"
#include "kernels/cuda/combine.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/gqa/config.h"
#include "kernels/cuda/gqa/rows.cuh"
#include "kernels/cuda/gqa/softmax.cuh"
#include "kernels/cuda/schedule.cuh"

namespace attnd::kernels::cuda {

// Row of the tile of a lane's row r in the prefill variant.
__device__ inline int RowOfLane(int r) { return 16 * WarpIndex() + LaneIndex() / 4 + 8 * r; }

// Rows of state that is carried lie at PairIndex(), as (m, l, O).
__device__ inline float* CarryRow(const GqaParams& p, int64_t index) {
  return p.carry + index * (p.value_width + 2);
}

template <int kValueWidth>
__device__ inline void LoadCarry(const GqaParams& p, const SequenceView& view, const GqaTile& tile,
                                 SoftmaxState<kValueWidth>& state) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int64_t index = PairIndex(p, view, tile, RowOfLane(r));
    if (index < 0) {
      continue;
    }
    const float* row = CarryRow(p, index);
    state.maximum[r] = row[0];
    state.sum[r] = row[1];
#pragma unroll
    for (int n = 0; n < kValueWidth / 8; ++n) {
      if (8 * n < p.value_width) {
        const auto* pair = reinterpret_cast<const Float2*>(row + 2 + 8 * n + 2 * (LaneIndex() % 4));
        state.o[n][2 * r] = pair->x;
        state.o[n][2 * r + 1] = pair->y;
      }
    }
  }
}

// A lane's columns of one of its rows, times `factor`.
template <int kValueWidth>
__device__ inline void StoreRow(const SoftmaxState<kValueWidth>& state, int r, float factor,
                                int32_t width, float* to) {
#pragma unroll
  for (int n = 0; n < kValueWidth / 8; ++n) {
    if (8 * n < width) {
      *reinterpret_cast<Float2*>(to + 8 * n + 2 * (LaneIndex() % 4)) = {
          state.o[n][2 * r] * factor, state.o[n][2 * r + 1] * factor};
    }
  }
}

template <int kValueWidth>
__device__ inline void StoreState(const SoftmaxState<kValueWidth>& state, int r, int32_t width,
                                  float* to) {
  if (LaneIndex() % 4 == 0) {
    *reinterpret_cast<Float2*>(to) = {state.maximum[r], state.sum[r]};
  }
  StoreRow(state, r, 1.0f, width, to + 2);
}

// Prefill: each warp stores its rows. `partials` has no place (`first` is null) when the output is
// written. A pointer that may be null would put the struct into local memory.
template <typename C>
__device__ inline void StoreRows(const GqaParams& p, const SequenceView& view, const GqaTile& tile,
                                 const SoftmaxState<C::kValueWidth>& state,
                                 const Partials& partials, int64_t split) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int64_t index = PairIndex(p, view, tile, RowOfLane(r));
    if (index < 0) {
      continue;
    }
    if (partials.first != nullptr) {
      StoreState(state, r, p.value_width, partials.Row(split, RowOfLane(r)));
    } else if (p.carry != nullptr && !p.carry_last) {
      StoreState(state, r, p.value_width, CarryRow(p, index));
    } else {
      StoreRow(state, r, Normalizer(state.sum[r]), p.value_width, p.output + index * p.value_width);
    }
  }
}

// Where the warps of the decode variant leave their states: over the stages.
template <typename C>
struct MergeBuffer {
  Shared<Float2> o;      // [warps][16][kMergeStride]
  Shared<Float2> weigh;  // [warps][16]: (m, l)
};

template <typename C>
__device__ inline MergeBuffer<C> LeaveState(const SoftmaxState<C::kValueWidth>& state) {
  SharedCarver carver;
  MergeBuffer<C> buffer;
  buffer.o = carver.Take<Float2>(C::kMergePairs);
  buffer.weigh = carver.Take<Float2>(16 * C::kWarps);
  SyncBlock();  // all are done with the stages
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = RowOfLane(r);
    if (LaneIndex() % 4 == 0) {
      buffer.weigh.Store(row, {state.maximum[r], state.sum[r]});
    }
#pragma unroll
    for (int n = 0; n < C::kValueWidth / 8; ++n) {
      buffer.o.Store(row * C::kMergeStride + 4 * n + LaneIndex() % 4,
                     {state.o[n][2 * r], state.o[n][2 * r + 1]});
    }
  }
  SyncBlock();
  return buffer;
}

// Decode: the states of the four warps, added in their order. A warp takes every fourth row.
template <typename C>
__device__ inline void MergeRows(const GqaParams& p, const SequenceView& view, const GqaTile& tile,
                                 const MergeBuffer<C>& buffer, const Partials& partials,
                                 int64_t split) {
  for (int row = WarpIndex(); row < C::kRows; row += C::kWarps) {
    const int64_t index = PairIndex(p, view, tile, row);
    if (index < 0) {
      continue;
    }
    float maximum = -INFINITY;
#pragma unroll
    for (int w = 0; w < C::kWarps; ++w) {
      maximum = fmaxf(maximum, buffer.weigh.Load(16 * w + row).x);
    }
    float weight[C::kWarps];
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < C::kWarps; ++w) {
      const Float2 own = buffer.weigh.Load(16 * w + row);
      weight[w] = Exp2(own.x - Subtrahend(maximum));
      sum += weight[w] * own.y;
    }
    float* to = p.output + index * p.value_width;
    float factor = Normalizer(sum);
    if (partials.first != nullptr) {
      to = partials.Row(split, row);
      if (LaneIndex() == 0) {
        *reinterpret_cast<Float2*>(to) = {maximum, sum};
      }
      to += 2;
      factor = 1.0f;
    }
    for (int pair = LaneIndex(); 2 * pair < p.value_width; pair += 32) {
      Float2 o = {0.0f, 0.0f};
#pragma unroll
      for (int w = 0; w < C::kWarps; ++w) {
        const Float2 own = buffer.o.Load((16 * w + row) * C::kMergeStride + pair);
        o.x += weight[w] * own.x;
        o.y += weight[w] * own.y;
      }
      *reinterpret_cast<Float2*>(to + 2 * pair) = {o.x * factor, o.y * factor};
    }
  }
}

template <typename C>
__device__ inline void FinishItem(const GqaParams& p, const SequenceView& view, const GqaTile& tile,
                                  const WorkItem& item, const TileSplits& splits,
                                  const SoftmaxState<C::kValueWidth>& state,
                                  Shared<int32_t> notes) {
  Partials partials = PartialsOf(p.schedule, item, splits, C::kRows, p.value_width);
  if (splits.count <= 1) {
    partials.first = nullptr;
  }
  const int64_t split = item.split - splits.first;
  if constexpr (C::kDecode) {
    MergeRows<C>(p, view, tile, LeaveState<C>(state), partials, split);
  } else {
    StoreRows<C>(p, view, tile, state, partials, split);
  }
  if (partials.first == nullptr) {
    return;
  }
  if (ArriveLast(p.schedule, item, splits, notes)) {
    CombineTile(partials, splits.count, C::kWarps, [&](int32_t row) -> float* {
      const int64_t index = PairIndex(p, view, tile, row);
      return index < 0 ? nullptr : p.output + index * p.value_width;
    });
  }
}

}  // namespace attnd::kernels::cuda
