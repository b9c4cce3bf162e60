// The arithmetic of the absorbed MLA kernel on a key tile in shared memory: scores, weights,
// output.
#pragma once

#include "kernels/cuda/combine.cuh"
#include "kernels/cuda/latent/latent_config.cuh"
#include "kernels/cuda/latent/latent_tile.cuh"

namespace attnd::kernels::cuda {

struct alignas(8) FloatPair {
  float low, high;
};
struct alignas(8) WordPair {
  uint32_t low, high;
};

// The queries of a warp as fragments.
template <typename C>
struct LatentQueries {
  uint32_t content[2][C::kSteps][4];
  uint32_t rope[2][4];  // columns 16 slice and on
};

// The state of a row that a lane keeps, shared with three neighbours: each has the sum over its own
// eight keys of every tile.
struct LatentState {
  float maximum = -INFINITY;
  float sum = 0.0f;
};

template <typename E>
__device__ inline uint32_t PackedColumns(const float* row, int32_t column, int32_t width) {
  if (row == nullptr || column >= width) {
    return 0;
  }
  const FloatPair pair = *reinterpret_cast<const FloatPair*>(row + column);
  return Pack<E>(pair.low, pair.high);
}

template <typename C>
__device__ inline void LoadQueries(const LatentParams& p, const LatentTile& tile,
                                   const LatentThread& thread, LatentQueries<C>& queries) {
  using E = typename C::Element;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int unit = i / 2;
    const int index = (2 * thread.pair + unit) * kLatentUnitRows + i % 2 * 8 + thread.lane / 4;
    const int64_t place = RowOf(p, tile, index).place;
    const float* content = place < 0 ? nullptr : p.query + place * p.d_latent;
    const float* rope = place < 0 ? nullptr : p.rope_query + place * p.d_rope;
    const int column = 2 * (thread.lane % 4);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = i % 2 + 2 * half;
#pragma unroll
      for (int step = 0; step < C::kSteps; ++step) {
        queries.content[unit][step][r] = PackedColumns<E>(
            content, thread.slice * C::kSliceWidth + 16 * step + 8 * half + column, p.d_latent);
      }
      queries.rope[unit][r] =
          PackedColumns<E>(rope, 16 * thread.slice + 8 * half + column, p.d_rope);
    }
  }
}

// Index of chunk `chunk` of a row of the score array, in units of four floats. What is xored to the
// chunk spreads the rows that are stored together, and those that are loaded, over the banks.
__device__ inline int ScoreChunk(int pair, int slice, int row, int chunk) {
  return ((pair * kLatentSlices + slice) * 32 + row) * 8 + (chunk ^ (row & 3) << 1);
}

// Likewise of the weights, in chunks of eight elements.
__device__ inline int WeightChunk(int pair, int row, int chunk) {
  return (pair * 32 + row) * 4 + (chunk ^ ((row >> 1 & 1) << 1 | (row >> 2 & 1)));
}

// One slice's sums of the scores of 32 rows and 32 keys.
template <typename C>
__device__ inline void PartialScores(const LatentArrays<C>& arrays, Shared<uint16_t> keys,
                                     Shared<uint16_t> rope, Shared<float> scales,
                                     const LatentThread& thread, int32_t d_rope,
                                     const LatentQueries<C>& queries) {
  using E = typename C::Element;
  const int lane = thread.lane;
  const int key_index = KeyFragment<C::kWidth>(lane, thread.slice * (C::kSliceWidth / 8));
  const int rope_index = KeyFragment<kLatentRopeWidth>(lane, 2 * thread.slice);
  const Shared<FloatPair> scores = arrays.scores.template As<FloatPair>();
  const int score_index =
      ScoreChunk(thread.pair, thread.slice, lane / 4, lane % 4 / 2) * 2 + lane % 2;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float s[2][2][4] = {};
#pragma unroll
    for (int step = 0; step < C::kSteps; ++step) {
      uint32_t b[4];
      LoadMatrix4(b, keys, StepFragment(key_index, step) + 16 * half * C::kWidth);
#pragma unroll
      for (int unit = 0; unit < 2; ++unit) {
        Mma<E>(s[unit][0], queries.content[unit][step], {b[0], b[1]});
        Mma<E>(s[unit][1], queries.content[unit][step], {b[2], b[3]});
      }
    }
    if constexpr (C::kE4M3) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float scale = scales.Load(16 * half + i / 2 * 8 + 2 * (lane % 4) + i % 2);
#pragma unroll
        for (int unit = 0; unit < 2; ++unit) {
          s[unit][i / 2][i % 2] *= scale;
          s[unit][i / 2][2 + i % 2] *= scale;
        }
      }
    }
    if (16 * thread.slice < d_rope) {
#pragma unroll
      for (int unit = 0; unit < 2; ++unit) {
        uint32_t b[4];
        LoadMatrix4(b, rope,
                    arrays.rope_slots.Load(2 * thread.pair + unit) * arrays.kRope + rope_index +
                        16 * half * kLatentRopeWidth);
        Mma<E>(s[unit][0], queries.rope[unit], {b[0], b[1]});
        Mma<E>(s[unit][1], queries.rope[unit], {b[2], b[3]});
      }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int unit = i / 4;
      const int tile = i / 2 % 2;
      const int row = unit * kLatentUnitRows + i % 2 * 8;  // and lane / 4
      scores.Store((score_index ^ (4 * half + 2 * tile) * 2) + row * 16,
                   {s[unit][tile][i % 2 * 2], s[unit][tile][i % 2 * 2 + 1]});
    }
  }
}

// The row of the pair that a lane has between the products. Lanes 4i to 4i + 3 have one row; eight
// lanes load 16 bytes each at a time, and rows two apart lie in different banks.
__device__ inline int StateRow(const LatentThread& thread) {
  const int quad = thread.lane / 4;
  return thread.slice * 8 + (quad / 2 % 2 | quad % 2 << 1 | quad / 4 << 2);
}

// Scores of a lane's eight keys: 4 (lane % 4) + 16 j + 0 to 3.
template <typename C>
__device__ inline void SumScores(const LatentArrays<C>& arrays, const LatentThread& thread, int row,
                                 float (&x)[8]) {
  const Shared<Uint4> scores = arrays.scores.template As<Uint4>();
  const int index = ScoreChunk(thread.pair, 0, row, thread.lane % 4);
#pragma unroll
  for (int j = 0; j < 2; ++j) {
#pragma unroll
    for (int slice = 0; slice < kLatentSlices; ++slice) {
      const Uint4 part = scores.Load((index ^ 4 * j) + slice * 256);
      const uint32_t words[4] = {part.x, part.y, part.z, part.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float value = BitsToFloat(words[i]);
        x[4 * j + i] = slice == 0 ? value : x[4 * j + i] + value;
      }
    }
  }
}

// Takes out the keys that a lane's row does not see, in tiles at the edge of what rows do.
template <typename C>
__device__ inline void MaskScores(const LatentParams& p, const LatentArrays<C>& arrays,
                                  const LatentThread& thread, int row, int32_t key, float (&x)[8]) {
  const LatentWork work = LoadRecord<LatentWork>(arrays.work);
  const LatentRow place = RowOf(p, work.tile, thread.pair * 32 + row);
  const int32_t lo = Relative(place.lo, work.first_key) - key - 4 * (thread.lane % 4);
  const int32_t hi = Relative(place.hi, work.first_key) - key - 4 * (thread.lane % 4);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int32_t own = i / 4 * 16 + i % 4;
    x[i] = lo <= own && own < hi ? x[i] : -INFINITY;
  }
}

// Scores become weights, and the row's output so far gets a factor. `key`: the tile's first,
// counted from the item's first tile.
template <typename C>
__device__ inline void Weigh(const LatentParams& p, const LatentArrays<C>& arrays,
                             Shared<float> scales, const LatentThread& thread, int32_t key,
                             LatentState& state) {
  using E = typename C::Element;
  const int row = StateRow(thread);
  const int first = 4 * (thread.lane % 4);
  float x[8];
  SumScores(arrays, thread, row, x);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    x[i] *= p.scale_log2;
  }
  const LatentWork work = LoadRecord<LatentWork>(arrays.work);
  if (key < work.seen_begin || work.all_end < key + kLatentKeys) {
    MaskScores(p, arrays, thread, row, key, x);
  }
  float maximum = state.maximum;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    maximum = x[i] > maximum ? x[i] : maximum;
  }
#pragma unroll
  for (int mask = 1; mask <= 2; mask *= 2) {
    const float other = ShuffleXor(maximum, mask);
    maximum = other > maximum ? other : maximum;
  }
  const float subtrahend = Subtrahend(maximum);
  const float factor = Exp2(state.maximum - subtrahend);
  state.maximum = maximum;
  state.sum *= factor;
  if (thread.lane % 4 == 0) {
    arrays.factors.Store(thread.pair * 32 + row, factor);
  }
  const Shared<WordPair> weights = arrays.weights.template As<WordPair>();
  const int index = WeightChunk(thread.pair, row, thread.lane % 4 / 2) * 2 + thread.lane % 2;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float& value = x[4 * j + i];
      value = Exp2(value - subtrahend);
      state.sum += value;
      if constexpr (C::kE4M3) {
        // The scale of a key that no row sees may be a NaN.
        value = value > 0.0f ? value * scales.Load(first + 16 * j + i) : 0.0f;
      }
    }
    const WordPair packed = {Pack<E>(x[4 * j], x[4 * j + 1]), Pack<E>(x[4 * j + 2], x[4 * j + 3])};
    weights.Store(index ^ 4 * j, packed);
  }
}

// The output of a warp: rows as fragments have them, the columns of its slice.
template <typename C>
struct LatentOutput {
  float values[2][2 * C::kSteps][4];
};

template <typename C>
__device__ inline void Rescale(const LatentArrays<C>& arrays, const LatentThread& thread,
                               LatentOutput<C>& output) {
  float factors[4];
  bool some = false;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    factors[i] = arrays.factors.Load(thread.pair * 32 + 8 * i + thread.lane / 4);
    some |= factors[i] != 1.0f;
  }
  if (!Any(some)) {
    return;
  }
#pragma unroll
  for (int unit = 0; unit < 2; ++unit) {
#pragma unroll
    for (int n = 0; n < 2 * C::kSteps; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        output.values[unit][n][i] *= factors[2 * unit + i / 2];
      }
    }
  }
}

template <typename C>
__device__ inline void AddWeighted(const LatentArrays<C>& arrays, Shared<uint16_t> keys,
                                   const LatentThread& thread, LatentOutput<C>& output) {
  using E = typename C::Element;
  const int lane = thread.lane;
  const Shared<uint16_t> weights = arrays.weights.template As<uint16_t>();
  const int weight_index = WeightChunk(thread.pair, lane % 16, lane / 16) * 8;
  const int key_index = KeyFragment<C::kWidth>(lane, thread.slice * (C::kSliceWidth / 8));
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint32_t a[2][4];
#pragma unroll
    for (int unit = 0; unit < 2; ++unit) {
      LoadMatrix4(a[unit], weights, (weight_index ^ 16 * half) + unit * kLatentUnitRows * 32);
    }
#pragma unroll
    for (int step = 0; step < C::kSteps; ++step) {
      uint32_t b[4];
      LoadMatrix4Transposed(b, keys, StepFragment(key_index, step) + 16 * half * C::kWidth);
#pragma unroll
      for (int unit = 0; unit < 2; ++unit) {
        Mma<E>(output.values[unit][2 * step], a[unit], {b[0], b[2]});
        Mma<E>(output.values[unit][2 * step + 1], a[unit], {b[1], b[3]});
      }
    }
  }
}

}  // namespace attnd::kernels::cuda
