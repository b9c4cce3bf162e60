// A warp's 16 rows against keys in shared memory: scores, online softmax, sums of values.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cuda/attention_params.h"
#include "kernels/cuda/combine.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/gqa/load.cuh"
#include "kernels/cuda/gqa/rows.cuh"

namespace attnd::kernels::cuda {

struct alignas(8) Float2 {
  float x, y;
};

// What a lane knows of its two rows: (m, l, O) as in combine.cuh; of O the columns 8 n + 2 (lane %
// 4) and the next, of row i in o[n][2 i] and o[n][2 i + 1].
template <int kValueWidth>
struct SoftmaxState {
  float maximum[2];
  float sum[2];
  float o[kValueWidth / 8][4];

  __device__ void Clear() {
    maximum[0] = maximum[1] = -INFINITY;
    sum[0] = sum[1] = 0.0f;
#pragma unroll
    for (int n = 0; n < kValueWidth / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        o[n][i] = 0.0f;
      }
    }
  }
};

// Columns `column` and the next of a query: content, then rope, then zeros.
__device__ inline Float2 QueryPair(const GqaParams& p, int64_t index, int column) {
  if (index >= 0 && column < p.content_width) {
    return *reinterpret_cast<const Float2*>(p.query + index * p.content_width + column);
  }
  column -= p.content_width;
  if (index >= 0 && column < p.rope_width) {
    return *reinterpret_cast<const Float2*>(p.rope_query + index * p.rope_width + column);
  }
  return {0.0f, 0.0f};
}

// The queries of a warp's rows as left operands, rounded to E.
template <typename E, int kKeyWidth>
__device__ inline void LoadQuery(const GqaParams& p, const SequenceView& view, const GqaTile& tile,
                                 int32_t first_row_of_tile, uint32_t (&query)[kKeyWidth / 16][4]) {
  const int row = first_row_of_tile + LaneIndex() / 4;
  const int64_t index[2] = {PairIndex(p, view, tile, row), PairIndex(p, view, tile, row + 8)};
#pragma unroll
  for (int k = 0; k < kKeyWidth / 16; ++k) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int column = 16 * k + 8 * (r / 2) + 2 * (LaneIndex() % 4);
      const Float2 pair = QueryPair(p, index[r % 2], column);
      query[k][r] = Pack<E>(pair.x, pair.y);
    }
  }
}

// score[n] are keys first + 8 n ... of the stage.
template <typename E, int kKeyWidth, int kKeys>
__device__ inline void Scores(const uint32_t (&query)[kKeyWidth / 16][4], Shared<uint16_t> keys,
                              int first, float (&score)[kKeys / 8][4]) {
#pragma unroll
  for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      score[n][i] = 0.0f;
    }
  }
  const int lane = LaneIndex();
  const int row = first + lane / 16 * 8 + lane % 8;
  const int half = lane / 8 % 2;
#pragma unroll
  for (int k = 0; k < kKeyWidth / 16; ++k) {
#pragma unroll
    for (int n = 0; n < kKeys / 8; n += 2) {
      uint32_t b[4];
      LoadMatrix4(b, keys, Swizzled<kKeyWidth>(row + 8 * n, k / 4, k % 4 * 2 ^ half));
      Mma<E>(score[n], query[k], {b[0], b[1]});
      Mma<E>(score[n + 1], query[k], {b[2], b[3]});
    }
  }
}

// Takes away what a row does not see. `first` is the position of score[0]'s first key.
template <int kKeys>
__device__ inline void Mask(const Interval (&interval)[2], int32_t first,
                            float (&score)[kKeys / 8][4]) {
#pragma unroll
  for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int32_t key = first + 8 * n + 2 * (LaneIndex() % 4) + i % 2;
      const Interval& seen = interval[i / 2];
      score[n][i] = key >= seen.lo && key < seen.hi ? score[n][i] : -INFINITY;
    }
  }
}

// 2^(score * scale - m). One instruction does both without rounding the product, as m was rounded:
// of the largest score the error of m is left, which 2^x turns into 0 or infinity where m is 2^31
// and more. Beyond 2^20 the product is rounded too, of the rows that need it: another row's bits do
// not depend on it.
template <int kKeys>
__device__ inline void Exponentials(float scale, const float (&subtrahend)[2],
                                    float (&score)[kKeys / 8][4]) {
  constexpr float kLarge = 0x1p20f;
  const bool large[2] = {fabsf(subtrahend[0]) > kLarge, fabsf(subtrahend[1]) > kLarge};
  if (!Any(large[0] || large[1])) {
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        score[n][i] = Exp2(fmaf(score[n][i], scale, -subtrahend[i / 2]));
      }
    }
    return;
  }
#pragma unroll
  for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float fused = large[i / 2] ? 0.0f : subtrahend[i / 2];
      const float after = large[i / 2] ? subtrahend[i / 2] : 0.0f;
      score[n][i] = Exp2(fmaf(score[n][i], scale, -fused) - after);
    }
  }
}

// Turns scores into weights 2^(score * scale - m) and takes them into the state's m and l; O is
// rescaled to the new m.
template <int kKeys, int kValueWidth>
__device__ inline void Weigh(float scale, float (&score)[kKeys / 8][4],
                             SoftmaxState<kValueWidth>& state) {
  float largest[2] = {-INFINITY, -INFINITY};
#pragma unroll
  for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      largest[i / 2] = fmaxf(largest[i / 2], score[n][i]);
    }
  }
  float rescale[2];
  float subtrahend[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    largest[r] = fmaxf(largest[r], ShuffleXor(largest[r], 1));
    largest[r] = fmaxf(largest[r], ShuffleXor(largest[r], 2));
    const float maximum = fmaxf(state.maximum[r], largest[r] * scale);
    subtrahend[r] = Subtrahend(maximum);
    rescale[r] = Exp2(state.maximum[r] - subtrahend[r]);
    state.maximum[r] = maximum;
  }
  Exponentials<kKeys>(scale, subtrahend, score);
  float sum[2] = {0.0f, 0.0f};
#pragma unroll
  for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sum[i / 2] += score[n][i];
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    sum[r] += ShuffleXor(sum[r], 1);
    sum[r] += ShuffleXor(sum[r], 2);
    state.sum[r] = fmaf(state.sum[r], rescale[r], sum[r]);
  }
  // Most tiles of a long history leave m as it was, and times 1 changes no bit.
  if (Any(rescale[0] != 1.0f || rescale[1] != 1.0f)) {
#pragma unroll
    for (int n = 0; n < kValueWidth / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        state.o[n][i] *= rescale[i / 2];
      }
    }
  }
}

// O += weights, rounded to E, times the values of keys first ... of the stage.
template <typename E, int kKeys, int kValueWidth>
__device__ inline void AddValues(const float (&weight)[kKeys / 8][4], Shared<uint16_t> values,
                                 int first, SoftmaxState<kValueWidth>& state) {
  const int lane = LaneIndex();
  const int row = first + lane / 8 % 2 * 8 + lane % 8;
  const int chunk = lane / 16;
#pragma unroll
  for (int k = 0; k < kKeys / 16; ++k) {
    const float(&low)[4] = weight[2 * k];
    const float(&high)[4] = weight[2 * k + 1];
    const uint32_t a[4] = {Pack<E>(low[0], low[1]), Pack<E>(low[2], low[3]),
                           Pack<E>(high[0], high[1]), Pack<E>(high[2], high[3])};
#pragma unroll
    for (int n = 0; n < kValueWidth / 8; n += 2) {
      uint32_t b[4];
      LoadMatrix4Transposed(b, values, Swizzled<kValueWidth>(row + 16 * k, n / 8, n % 8 ^ chunk));
      Mma<E>(state.o[n], a, {b[0], b[1]});
      Mma<E>(state.o[n + 1], a, {b[2], b[3]});
    }
  }
}

// kKeys keys from row `first` of a stage, the first of them at position `position`.
template <typename E, int kKeyWidth, int kValueWidth, int kKeys>
__device__ inline void Attend(const WarpRows& rows, const uint32_t (&query)[kKeyWidth / 16][4],
                              Shared<uint16_t> keys, Shared<uint16_t> values, int first,
                              int32_t position, float scale, SoftmaxState<kValueWidth>& state) {
  if (position >= rows.reach.hi || position + kKeys <= rows.reach.lo) {
    return;  // would change no bit
  }
  float score[kKeys / 8][4];
  Scores<E, kKeyWidth, kKeys>(query, keys, first, score);
  if (position < rows.full.lo || position + kKeys > rows.full.hi) {
    Mask<kKeys>(rows.interval, position, score);
  }
  Weigh<kKeys, kValueWidth>(scale, score, state);
  AddValues<E, kKeys, kValueWidth>(score, values, first, state);
}

}  // namespace attnd::kernels::cuda
