#include "tests/gpu/fragments.h"

#include "kernels/cuda/device.cuh"

namespace attnd::kernels::cuda {
namespace {

template <typename E>
__global__ void MmaProbeKernel(MmaProbe p) {
  uint32_t a[4], b[2];
  float d[4];
  for (int i = 0; i < 4; ++i) {
    a[i] = p.a[4 * LaneIndex() + i];
    b[i % 2] = p.b[2 * LaneIndex() + i % 2];
    d[i] = p.d[4 * LaneIndex() + i];
  }
  Mma<E>(d, a, b);
  for (int i = 0; i < 4; ++i) {
    p.d[4 * LaneIndex() + i] = d[i];
  }
}

__global__ void LoadMatrixProbeKernel(LoadMatrixProbe p) {
  SharedCarver carver;
  const Shared<uint16_t> s = carver.Take<uint16_t>(16 * 32);
  const int lane = LaneIndex();
  for (int chunk = lane; chunk < 64; chunk += 32) {
    CopyAsync16(s, 8 * chunk, p.rows + 8 * chunk, chunk / 4 < p.valid_rows);
  }
  CopyAsyncCommit();
  CopyAsyncWait<0>();
  SyncBlock();
  uint32_t r[4];
  if (p.transposed) {
    LoadMatrix4Transposed(r, s, lane % 8 * 32 + lane / 8 * 8);
  } else {
    LoadMatrix4(r, s, lane % 8 * 32 + lane / 8 * 8);
  }
  for (int j = 0; j < 4; ++j) {
    p.loaded[4 * lane + j] = r[j];
  }
  for (int i = lane; i < 16 * 32; i += 32) {
    p.copied[i] = s.Load(i);
  }
}

__global__ void ArithmeticProbeKernel(ArithmeticProbe p) {
  for (int64_t i = int64_t{BlockIndex().x} * 128 + ThreadIndex(); i < p.n;
       i += int64_t{GridSize().x} * 128) {
    const float x = p.x[i];
    p.bf16[i] = ToBF16(x).bits;
    p.f16[i] = ToF16(x).bits;
    p.e4m3[i] = ToE4M3(x).bits;
    p.packed[i] = Pack<BF16>(x, -x);
    float widened[4];
    UnpackE4M3(FloatToBits(x), widened);
    for (int k = 0; k < 4; ++k) {
      p.widened[4 * i + k] = widened[k];
    }
    p.exp2[i] = Exp2(x);
    p.reciprocal[i] = Reciprocal(x);
  }
}

}  // namespace

void LaunchMmaProbe(Stream& stream, bool bf16, const MmaProbe& params) {
  Launch(stream, bf16 ? MmaProbeKernel<BF16> : MmaProbeKernel<F16>, Index3{1, 1, 1}, 32, 0, params);
}

void LaunchLoadMatrixProbe(Stream& stream, const LoadMatrixProbe& params) {
  Launch(stream, LoadMatrixProbeKernel, Index3{1, 1, 1}, 32, 16 * 32 * 2, params);
}

void LaunchArithmeticProbe(Stream& stream, int blocks, const ArithmeticProbe& params) {
  Launch(stream, ArithmeticProbeKernel, Index3{blocks, 1, 1}, 128, 0, params);
}

}  // namespace attnd::kernels::cuda
