// The emulated device runs a small kernel that uses a little of everything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "kernels/cuda/device.cuh"

namespace attnd::kernels::cuda {
namespace {

struct ProductParams {
  const uint16_t* a;  // bf16 [16][16]
  const uint16_t* b;  // bf16 [16][8], k by n
  float* d;           // [blocks][warps][16][8]
};

// d = a b by every warp of every block.
__global__ void ProductKernel(ProductParams p) {
  SharedCarver carver;
  const Shared<uint16_t> a = carver.Take<uint16_t>(16 * 16);
  const Shared<uint16_t> b = carver.Take<uint16_t>(16 * 8);
  if (ThreadIndex() < 32) {
    CopyAsync16(a, 8 * ThreadIndex(), p.a + 8 * ThreadIndex(), true);
  } else if (ThreadIndex() < 48) {
    CopyAsync16(b, 8 * (ThreadIndex() - 32), p.b + 8 * (ThreadIndex() - 32), true);
  }
  CopyAsyncCommit();
  CopyAsyncWait<0>();
  SyncBlock();
  const int lane = LaneIndex();
  uint32_t fa[4], fb[4];
  LoadMatrix4(fa, a, (lane % 16) * 16 + lane / 16 * 8);
  LoadMatrix4Transposed(fb, b, (lane % 16) * 8);
  float d[4] = {};
  Mma<BF16>(d, fa, {fb[0], fb[1]});
  float* out = p.d + (BlockIndex().x * 2 + WarpIndex()) * 16 * 8;
  for (int i = 0; i < 4; ++i) {
    out[(lane / 4 + 8 * (i / 2)) * 8 + 2 * (lane % 4) + i % 2] = d[i];
  }
}

TEST(Emulation, MultipliesInEveryOrder) {
  alignas(16) uint16_t a[16 * 16], b[16 * 8];
  std::vector<float> want(16 * 8);
  for (int i = 0; i < 16 * 16; ++i) {
    a[i] = ToBF16(static_cast<float>(i * 7 % 23 - 11)).bits;
  }
  for (int i = 0; i < 16 * 8; ++i) {
    b[i] = ToBF16(static_cast<float>(i * 5 % 17 - 8)).bits;
  }
  for (int i = 0; i < 16 * 8; ++i) {
    for (int k = 0; k < 16; ++k) {
      want[i] += ToFloat(BF16{a[i / 8 * 16 + k]}) * ToFloat(BF16{b[k * 8 + i % 8]});
    }
  }
  for (int seed = -2; seed < 3; ++seed) {
    Stream stream;
    if (seed < 0) {
      stream.set_order(seed == -1 ? Order::kReverse : Order::kInOrder);
    } else {
      stream.set_order(static_cast<uint64_t>(seed));
    }
    std::vector<float> d(3 * 2 * 16 * 8, -1.0f);
    Launch(stream, ProductKernel, Index3{3, 1, 1}, 64, 1024, ProductParams{a, b, d.data()});
    for (size_t i = 0; i < d.size(); ++i) {
      ASSERT_EQ(d[i], want[i % (16 * 8)]) << i;
    }
    EXPECT_EQ(stream.counts().mmas, 6);
    EXPECT_EQ(stream.counts().copies, 3 * 48);
  }
}

}  // namespace
}  // namespace attnd::kernels::cuda
