// A kernel that uses all of device.cuh: the emulated device runs it, nvcc compiles it, and the
// instructions that come of it are looked at (ptx.py).
#include "cuda_emulation/every_instruction.h"

#include "kernels/cuda/device.cuh"

namespace attnd::kernels::cuda {
namespace {

template <typename E>
__device__ void Multiply(const EveryInstructionParams& p, const Shared<uint16_t>& a,
                         const Shared<uint16_t>& b) {
  const int lane = LaneIndex();
  uint32_t fa[4], fb[4];
  LoadMatrix4(fa, a, (lane % 16) * 16 + lane / 16 * 8);
  LoadMatrix4Transposed(fb, b, (lane % 16) * 16 + lane / 16 * 8);
  for (int half = 0; half < 2; ++half) {
    float d[4] = {};
    Mma<E>(d, fa, {fb[2 * half], fb[2 * half + 1]});
    for (int i = 0; i < 4; ++i) {
      p.product[(lane / 4 + 8 * (i / 2)) * 16 + 8 * half + 2 * (lane % 4) + i % 2] = d[i];
    }
  }
}

// One warp multiplies, the other does the rest.
template <typename E>
__global__ void __launch_bounds__(64) EveryInstructionKernel(EveryInstructionParams p) {
  SharedCarver carver;
  const Shared<uint16_t> a = carver.Take<uint16_t>(256);
  const Shared<uint16_t> b = carver.Take<uint16_t>(256);
  const Shared<float> scratch = carver.Take<float>(64);
  if (WarpIndex() == 0) {
    CopyAsync16(a, 8 * ThreadIndex(), p.a + 8 * ThreadIndex(), true);
    CopyAsyncCommit();
    // Rows of b from p.rows on are zeros.
    CopyAsync16(b, 8 * ThreadIndex(), p.b + 8 * ThreadIndex(), ThreadIndex() / 2 < p.rows);
    CopyAsyncCommit();
    CopyAsyncWait<1>();
    CopyAsyncWait<0>();
  }
  SyncBlock();
  if (WarpIndex() == 0) {
    Multiply<E>(p, a, b);
  } else {
    const int lane = LaneIndex();
    float x = Exp2(p.exponents[lane]);
    scratch.At(32).Store(lane, x);
    SyncWarp();
    x = scratch.Load(32 + (lane + 1) % 32);
    const Uint4 four = scratch.As<Uint4>().Load(8 + lane / 4);
    const bool any = Any(four.x == 0);
    for (int step = 16; step > 0; step /= 2) {
      x += ShuffleXor(x, step);
    }
    p.sums[lane] = Reciprocal(Shuffle(x, 31)) + (any ? 1.0f : 0.0f);
  }
  Fence();
  SyncBlock();
  if (ThreadIndex() == 0) {
    const int before = AtomicAdd(p.arrivals, 1);
    Fence();
    p.last_seen[BlockIndex().x] =
        before + 1 == GridSize().x ? LoadGlobal(p.sums + 1) : LoadGlobal(p.exponents);
  }
}

}  // namespace

void LaunchEveryInstruction(Stream& stream, int blocks, bool bf16,
                            const EveryInstructionParams& params) {
  const int shared_bytes = 512 + 512 + 256;
  Launch(stream, bf16 ? EveryInstructionKernel<BF16> : EveryInstructionKernel<F16>,
         Index3{blocks, 1, 1}, 64, shared_bytes, params);
}

}  // namespace attnd::kernels::cuda
