// What an instantiation of the absorbed MLA kernel is made for, and its arrays in shared memory.
#pragma once

#include <type_traits>

#include "kernels/cuda/attention_params.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/latent/latent_instances.h"
#include "kernels/cuda/latent/latent_shape.h"

namespace attnd::kernels::cuda {

// Latents cached as CacheT, up to `kWidthT` wide.
template <typename CacheT, int kWidthT, int kUnitsT>
struct LatentConfig {
  using Cache = CacheT;
  static constexpr bool kE4M3 = std::is_same_v<Cache, E4M3>;
  using Element = std::conditional_t<kE4M3, BF16, Cache>;  // of the tensor cores and rope keys
  static constexpr int kWidth = kWidthT;
  static constexpr int kUnits = kUnitsT;
  static constexpr int kThreads = LatentThreads(kUnits);
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kTileRows = kUnits * kLatentUnitRows;
  static constexpr int kSliceWidth = kWidth / kLatentSlices;
  static constexpr int kSteps = kSliceWidth / 16;  // tensor core steps over a slice of the columns
  static constexpr int kRowBytes = kWidth * static_cast<int>(sizeof(Cache));
  static constexpr LatentShared kShared = LatentSharedOf(kE4M3, kWidth, kUnits, 1);
  static_assert(kSliceWidth % 32 == 0 && kUnits % 2 == 0);
};

// What a thread is for: in the products the columns of a slice for the two units of a pair, and
// between them eight rows of the pair.
struct LatentThread {
  int index = 0;  // in the block
  int lane = 0;
  int slice = 0;
  int pair = 0;
};

// Asked for in every phase of every key tile. The exchange with oneself keeps the compiler from
// computing a phase's addresses before the loop: with output and queries in 200 of 255 registers it
// had to put them aside in local memory.
__device__ inline LatentThread ThisThread() {
  LatentThread thread;
  thread.index = Shuffle(ThreadIndex(), LaneIndex());
  thread.lane = thread.index % 32;
  thread.slice = thread.index / 32 % kLatentSlices;
  thread.pair = thread.index / 32 / kLatentSlices;
  return thread;
}

// A structure for all threads of the block. What they need only now and then is read again each
// time: the registers belong to the output and the queries.
template <typename T>
__device__ inline void StoreRecord(Shared<uint64_t> shared, const T& record) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 8 == 0);
  uint64_t words[sizeof(T) / 8];
  __builtin_memcpy(words, &record, sizeof(T));
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(T) / 8); ++i) {
    shared.Store(i, words[i]);
  }
}

template <typename T>
__device__ inline T LoadRecord(Shared<uint64_t> shared) {
  uint64_t words[sizeof(T) / 8];
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(T) / 8); ++i) {
    words[i] = shared.Load(i);
  }
  T record;
  __builtin_memcpy(&record, words, sizeof(T));
  return record;
}

template <typename C>
struct LatentArrays {
  Shared<uint16_t> keys;       // [stages][32 keys][width]; e4m3: two elements each
  Shared<uint16_t> rope;       // [stages][rope_heads][32 keys][64]
  Shared<uint16_t> scales;     // [stages][32 keys] float32; e4m3 only
  Shared<uint16_t> wide;       // [32 keys][width]; e4m3 only
  Shared<float> scores;        // [pairs][slices][32 rows][32 keys]
  Shared<uint32_t> weights;    // [pairs][32 rows][32 keys / 2]
  Shared<float> factors;       // [tile rows]
  Shared<uint64_t> work;       // a LatentWork
  Shared<int32_t> flag;        // [1], for combining
  Shared<int32_t> rope_slots;  // [units]: where a stage has the rope keys of a unit

  static constexpr int kKeys = C::kShared.keys / 2;  // uint16_t of a stage
  static constexpr int kRope = C::kShared.rope / 2;  // and of a KV head of a stage
  static constexpr int kScales = C::kShared.scales / 2;

  __device__ static LatentArrays Take(const LatentLaunch& launch) {
    SharedCarver carver;
    LatentArrays arrays;
    arrays.keys = carver.Take<uint16_t>(launch.stages * kKeys);
    arrays.rope = carver.Take<uint16_t>(launch.stages * launch.rope_heads * kRope);
    if constexpr (C::kE4M3) {
      arrays.scales = carver.Take<uint16_t>(launch.stages * kScales);
      arrays.wide = carver.Take<uint16_t>(C::kShared.wide / 2);
    }
    arrays.scores = carver.Take<float>(C::kShared.scores / 4);
    arrays.weights = carver.Take<uint32_t>(C::kShared.weights / 4);
    arrays.factors = carver.Take<float>(C::kShared.factors / 4);
    arrays.work = carver.Take<uint64_t>(C::kShared.work / 8);
    arrays.flag = carver.Take<int32_t>(1 + C::kUnits);
    arrays.rope_slots = arrays.flag.At(1);
    return arrays;
  }
};

// Rows of 16-byte chunks without padding: chunk c of a row lies at c ^ (row % 8), so that the eight
// rows of a matrix that LoadMatrix4 reads, all at one chunk, lie in different banks. Rows have at
// least eight chunks. An index is written as what depends on the thread, xor and plus what does
// not: as a function of row and chunk every one of a hundred cost the compiler a register.
__device__ inline int SwizzledChunk(int row, int chunk) { return chunk ^ (row & 7); }

// What a lane gives LoadMatrix4 to read 16 keys by 16 columns as b of two products with `columns`
// on the k side (scores) or, transposed, on the n side (output): the same for both. Index of the
// first uint16_t, for the columns from chunk `chunk`, even, of keys 0 to 15.
template <int kWidth>
__device__ inline int KeyFragment(int lane, int chunk) {
  const int row = lane / 16 * 8 + lane % 8;
  return row * kWidth + SwizzledChunk(row, chunk + lane / 8 % 2) * 8;
}

// That of the `step`-th 16 columns from there. Where there are more than four steps the first
// begins at a multiple of 64 columns, with up to four at one of 16 times their number.
__device__ inline int StepFragment(int first, int step) {
  return (first ^ step % 4 * 16) + step / 4 * 64;
}

}  // namespace attnd::kernels::cuda
