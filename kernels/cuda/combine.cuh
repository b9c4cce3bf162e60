// Splits of a tile put together in the launch that made them: every block leaves its partial, the
// last one to arrive reads them all and writes the rows. A partial's row is (m, l, O): the largest
// exponent, the sum of 2^(x - m), and the sum of 2^(x - m) v, not divided; (-inf, 0, -) when the
// row sees nothing of the split, and O is then not read.
#pragma once

#include <cmath>

#include "kernels/cuda/attention_params.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/schedule.cuh"

namespace attnd::kernels::cuda {

// What is subtracted from exponents: a maximum of -inf would give -inf - -inf.
__device__ inline float Subtrahend(float maximum) { return maximum == -INFINITY ? 0.0f : maximum; }

// 1 / l; 0 for a row that sees nothing.
__device__ inline float Normalizer(float sum) { return sum > 0.0f ? Reciprocal(sum) : 0.0f; }

// Where the rows of a tile's partials lie.
struct Partials {
  float* first = nullptr;  // of the tile's first split with keys
  int32_t rows = 0;        // of a tile
  int32_t width = 0;       // of O

  __device__ float* Row(int64_t split, int32_t row) const {
    return first + (split * rows + row) * (width + 2);
  }
};

__device__ inline Partials PartialsOf(const Schedule& schedule, const WorkItem& item,
                                      const TileSplits& splits, int32_t rows, int32_t width) {
  const int64_t slot = int64_t{item.first_slot} + splits.first - item.first_split;
  return {schedule.partial + slot * rows * (width + 2), rows, width};
}

// Called by all threads once the block has written its partial. True in all threads of the block
// that came last: it may read the partials of the others; the counter is zero again.
__device__ inline bool ArriveLast(const Schedule& schedule, const WorkItem& item,
                                  const TileSplits& splits, Shared<int32_t> flag) {
  Fence();
  SyncBlock();
  if (ThreadIndex() == 0) {
    int32_t* arrivals = schedule.arrivals + item.first_slot;
    const bool last = AtomicAdd(arrivals, 1) == splits.count - 1;
    if (last) {
      *arrivals = 0;
    }
    flag.Store(0, last ? 1 : 0);
    Fence();
  }
  SyncBlock();
  return flag.Load(0) != 0;
}

// The largest exponent of a row among the splits. All lanes of a warp call it together.
__device__ inline float CombinedMaximum(const Partials& partials, int64_t splits, int32_t row) {
  float maximum = -INFINITY;
  for (int64_t s = LaneIndex(); s < splits; s += 32) {
    const float m = LoadGlobal(partials.Row(s, row));
    maximum = m > maximum ? m : maximum;
  }
  for (int mask = 16; mask > 0; mask /= 2) {
    const float other = ShuffleXor(maximum, mask);
    maximum = other > maximum ? other : maximum;
  }
  return maximum;
}

// Adds up columns `column + 32 i` of a row in the order of the splits; a lane's own column is
// LaneIndex() of them.
template <int kColumns>
__device__ inline void CombineColumns(const Partials& partials, int64_t splits, int32_t row,
                                      float maximum, int32_t column, float (&sum)[kColumns],
                                      float* total) {
  *total = 0.0f;
  for (int i = 0; i < kColumns; ++i) {
    sum[i] = 0.0f;
  }
  for (int64_t first = 0; first < splits; first += 32) {
    // Lane i knows split first + i.
    const int64_t own = first + LaneIndex();
    float weight = 0.0f;
    float length = 0.0f;
    if (own < splits) {
      weight = Exp2(LoadGlobal(partials.Row(own, row)) - maximum);
      length = LoadGlobal(partials.Row(own, row) + 1);
    }
    const int count = splits - first < 32 ? static_cast<int>(splits - first) : 32;
    for (int i = 0; i < count; ++i) {
      const float w = Shuffle(weight, i);
      *total += w * Shuffle(length, i);
      if (w == 0.0f) {
        continue;
      }
      const float* values = partials.Row(first + i, row) + 2;
#pragma unroll
      for (int k = 0; k < kColumns; ++k) {
        if (column + 32 * k < partials.width) {
          sum[k] += w * LoadGlobal(values + column + 32 * k);
        }
      }
    }
  }
}

// Writes the rows of a tile that `output(row)` gives a place for (null: none). A warp takes a row.
template <typename Output>
__device__ inline void CombineTile(const Partials& partials, int64_t splits, int warps,
                                   const Output& output) {
  constexpr int kColumns = 4;
  for (int32_t row = WarpIndex(); row < partials.rows; row += warps) {
    float* to = output(row);
    if (to == nullptr) {
      continue;
    }
    const float maximum = Subtrahend(CombinedMaximum(partials, splits, row));
    for (int32_t column = LaneIndex(); column - LaneIndex() < partials.width;
         column += 32 * kColumns) {
      float sum[kColumns];
      float total = 0.0f;
      CombineColumns(partials, splits, row, maximum, column, sum, &total);
      const float normalizer = Normalizer(total);
#pragma unroll
      for (int k = 0; k < kColumns; ++k) {
        if (column + 32 * k < partials.width) {
          to[column + 32 * k] = sum[k] * normalizer;
        }
      }
    }
  }
}

}  // namespace attnd::kernels::cuda
