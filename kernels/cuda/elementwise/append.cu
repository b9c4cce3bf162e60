// Rows of a batch into their slots of pages, rounded to the cache's dtype.
#include "kernels/cuda/elementwise/access.cuh"
#include "kernels/cuda/elementwise/elementwise.h"
#include "kernels/cuda/places.h"

namespace attnd::kernels::cuda {
namespace {

inline constexpr int kThreads = 128;
inline constexpr int kWarps = kThreads / 32;

struct AppendTargetView {
  uint8_t* pool;
  const int64_t* page;
  const int32_t* slot;
  uint8_t* not_finite;
  int64_t rows;
};

struct LocalKernelParams {
  AppendTargetView target;
  RowPlace keys, values;
  const float* key;
  const float* value;
  int64_t heads_kv;
  int64_t width;
};

struct GlobalKernelParams {
  AppendTargetView target;
  RowPlace latents, ropes;
  const float* latent;
  const float* rope_key;
  int64_t latent_width;
  int64_t rope_width;  // of all KV heads
};

// The threads `first`, `first` + step ... write their elements of a row; true when all are finite.
__device__ bool StoreElements(DType dtype, uint8_t* to, const float* from, int64_t width, int first,
                              int step) {
  bool finite = true;
  for (int64_t k = first; k < width; k += step) {
    finite = StoreElement(dtype, to, k, from[k]) && finite;
  }
  return finite;
}

// A block takes the key or the value of one KV head at a time.
__global__ void AppendLocalKernel(LocalKernelParams p) {
  for (int64_t w = BlockIndex().x; w < p.target.rows * p.heads_kv * 2; w += GridSize().x) {
    const bool is_value = w % 2 != 0;
    const int64_t head = w / 2 % p.heads_kv;
    const int64_t row = w / 2 / p.heads_kv;
    const RowPlace& place = is_value ? p.values : p.keys;
    uint8_t* to = p.target.pool + p.target.page[row] + place.offset + head * place.head_step +
                  p.target.slot[row] * place.stride;
    const float* from = (is_value ? p.value : p.key) + (row * p.heads_kv + head) * p.width;
    if (!StoreElements(place.dtype, to, from, p.width, ThreadIndex(), kThreads)) {
      p.target.not_finite[row] = 1;
    }
  }
}

// The largest magnitude as an integer: a NaN is above an infinity.
__device__ uint32_t LargestMagnitude(const float* values, int64_t width) {
  uint32_t largest = 0;
  for (int64_t k = LaneIndex(); k < width; k += 32) {
    const uint32_t magnitude = FloatToBits(values[k]) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
  for (int mask = 16; mask > 0; mask /= 2) {
    const uint32_t other = ShuffleXor(largest, mask);
    largest = other > largest ? other : largest;
  }
  return largest;
}

// As QuantizeE4M3() of convert.h, bit for bit.
__device__ bool StoreE4M3(const RowPlace& place, uint8_t* page, int32_t slot, const float* from,
                          int64_t width) {
  const uint32_t largest = LargestMagnitude(from, width);
  const float max = BitsToFloat(largest);
  float scale = max / 448.0f;
  scale = scale < 0x1p-126f ? 0x1p-126f : scale;
  scale = largest == 0 ? 0.0f : scale;
  const float divisor = largest == 0 ? 1.0f : scale;
  E4M3* to = reinterpret_cast<E4M3*>(page + place.offset + slot * place.stride);
  for (int64_t k = LaneIndex(); k < width; k += 32) {
    to[k] = ToE4M3(from[k] / divisor);
  }
  if (LaneIndex() == 0) {
    reinterpret_cast<float*>(page + place.scales)[slot] = scale;
  }
  return (FloatToBits(448.0f * scale) & 0x7fffffffu) < 0x7f800000u;
}

// A warp takes a row: its scale needs no more than the warp.
__global__ void AppendGlobalKernel(GlobalKernelParams p) {
  for (int64_t row = int64_t{BlockIndex().x} * kWarps + WarpIndex(); row < p.target.rows;
       row += int64_t{GridSize().x} * kWarps) {
    uint8_t* page = p.target.pool + p.target.page[row];
    const int32_t slot = p.target.slot[row];
    const float* latent = p.latent + row * p.latent_width;
    bool finite =
        p.latents.dtype == DType::kFp8E4M3
            ? StoreE4M3(p.latents, page, slot, latent, p.latent_width)
            : StoreElements(p.latents.dtype, page + p.latents.offset + slot * p.latents.stride,
                            latent, p.latent_width, LaneIndex(), 32);
    finite = StoreElements(p.ropes.dtype, page + p.ropes.offset + slot * p.ropes.stride,
                           p.rope_key + row * p.rope_width, p.rope_width, LaneIndex(), 32) &&
             finite;
    if (!finite) {
      p.target.not_finite[row] = 1;
    }
  }
}

AppendTargetView View(const AppendTarget& target) {
  return {target.pool, target.page, target.slot, target.not_finite, target.rows};
}

}  // namespace

void LaunchAppendLocal(Stream& stream, int blocks, const AppendLocalParams& params) {
  const LocalShape& shape = params.shape;
  const DType dtype = params.target.dtype;
  LocalKernelParams kernel{};
  kernel.target = View(params.target);
  kernel.keys = PlaceOf(KeyRows(shape, dtype, 0), shape);
  kernel.values = PlaceOf(ValueRows(shape, dtype, 0), shape);
  kernel.key = params.key;
  kernel.value = params.value;
  kernel.heads_kv = shape.heads_kv;
  kernel.width = shape.d_head;
  Launch(stream, AppendLocalKernel, {blocks, 1, 1}, kThreads, 0, kernel);
}

void LaunchAppendGlobal(Stream& stream, int blocks, const AppendGlobalParams& params) {
  const GlobalShape& shape = params.shape;
  GlobalKernelParams kernel{};
  kernel.target = View(params.target);
  kernel.latents = LatentPlace(shape, params.target.dtype);
  kernel.ropes = RopePlace(shape, params.target.dtype);
  kernel.latent = params.latent;
  kernel.rope_key = params.rope_key;
  kernel.latent_width = shape.d_latent;
  kernel.rope_width = shape.heads_kv * shape.d_rope;
  Launch(stream, AppendGlobalKernel, {blocks, 1, 1}, kThreads, 0, kernel);
}

}  // namespace attnd::kernels::cuda
