// Operands of matrix products: float32 rows with strides to padded rows of the weight's dtype, and
// products back. A block takes a row at a time.
#include "kernels/cuda/elementwise/access.cuh"
#include "kernels/cuda/elementwise/elementwise.h"

namespace attnd::kernels::cuda {
namespace {

inline constexpr int kThreads = 128;

__device__ int64_t OperandOffset(const OperandRows& rows, int64_t row, int64_t group) {
  return row / rows.inner * rows.row + (group * rows.inner + row % rows.inner) * rows.inner_step;
}

__global__ void PackRowsKernel(PackRowsParams p) {
  for (int64_t w = BlockIndex().x; w < p.groups * p.padded; w += GridSize().x) {
    const int64_t group = w / p.padded;
    const int64_t row = w % p.padded;
    const bool used = row < p.rows;
    const float* from = used ? p.x + OperandOffset(p.from, p.row_begin + row, group) : nullptr;
    for (int64_t k = ThreadIndex(); k < p.width; k += kThreads) {
      StoreElement(p.dtype, p.packed, w * p.width + k, used ? from[k] : 0.0f);
    }
  }
}

__global__ void UnpackRowsKernel(UnpackRowsParams p) {
  for (int64_t w = BlockIndex().x; w < p.groups * p.rows; w += GridSize().x) {
    const int64_t group = w / p.rows;
    const int64_t row = w % p.rows;
    const float* from = p.product + (group * p.padded + row) * p.width;
    float* to = p.y + OperandOffset(p.to, p.row_begin + row, group);
    for (int64_t n = ThreadIndex(); n < p.width; n += kThreads) {
      to[n] = from[n];
    }
  }
}

}  // namespace

void LaunchPackRows(Stream& stream, int blocks, const PackRowsParams& params) {
  Launch(stream, PackRowsKernel, {blocks, 1, 1}, kThreads, 0, params);
}

void LaunchUnpackRows(Stream& stream, int blocks, const UnpackRowsParams& params) {
  Launch(stream, UnpackRowsKernel, {blocks, 1, 1}, kThreads, 0, params);
}

}  // namespace attnd::kernels::cuda
