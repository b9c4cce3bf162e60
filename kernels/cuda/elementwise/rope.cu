// Rotation of interleaved pairs in place: a block takes a head of a row at a time.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/elementwise/elementwise.h"

namespace attnd::kernels::cuda {
namespace {

inline constexpr int kThreads = 64;

__global__ void RopeKernel(RopeParams p) {
  for (int64_t w = BlockIndex().x; w < p.rows * p.heads; w += GridSize().x) {
    const int64_t row = w / p.heads;
    float* pairs = p.x + w * 2 * p.half;
    for (int64_t t = ThreadIndex(); t < p.half; t += kThreads) {
      const float c = p.cos[row * p.half + t];
      const float s = p.sin[row * p.half + t];
      const float even = pairs[2 * t];
      const float odd = pairs[2 * t + 1];
      pairs[2 * t] = even * c - odd * s;
      pairs[2 * t + 1] = odd * c + even * s;
    }
  }
}

}  // namespace

void LaunchRope(Stream& stream, int blocks, const RopeParams& params) {
  Launch(stream, RopeKernel, {blocks, 1, 1}, kThreads, 0, params);
}

}  // namespace attnd::kernels::cuda
