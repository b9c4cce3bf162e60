// Where absorbed multi-head latent attention reads, and which shapes have a kernel.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>

#include "kernels/cuda/latent/latent_shape.h"
#include "tests/kernels/cuda/latent_case.h"

namespace attnd::kernels::cuda {
namespace {

TEST(LatentMemory, PagesBeyondFourGigabytes) {
  for (const DType dtype : {DType::kBF16, DType::kFp8E4M3}) {
    LatentCase c({2, 4, 64, 16}, dtype, {RowsOf(128, 130, 0, 0)}, 1);
    c.Store();
    ASSERT_EQ(c.pool_pages(), 3);
    constexpr int64_t kBytes = int64_t{20} << 30;
    void* pool = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT_NE(pool, MAP_FAILED);
    // Beyond what 31 and 32 bits hold of bytes, and 32 of elements.
    const int64_t page = c.page_bytes();
    c.MovePool(static_cast<uint8_t*>(pool),
               {(int64_t{3} << 30) / page * page, (int64_t{5} << 30) / page * page,
                (int64_t{19} << 30) / page * page});
    Stream stream;
    EXPECT_TRUE(Close(c.Run(stream), c.Want(), 8e-3));
    munmap(pool, kBytes);
  }
}

// More splits than a warp has lanes.
TEST(LatentMemory, FortySplits) {
  LatentCase c({1, 16, 16, 8}, DType::kF16, {RowsOf(2600, 2601, 0, 0), RowsOf(70, 71, 0, 0)}, 2);
  c.Store();
  LatentRun run;
  run.split_keys = 64;
  run.blocks = 7;
  Stream stream;
  EXPECT_TRUE(Close(c.Run(stream, run), c.Want(), 1e-3));
}

LatentParams ParamsOf(int32_t latent, int32_t rope, int32_t heads_kv) {
  LatentParams params;
  params.d_latent = latent;
  params.d_rope = rope;
  params.heads_kv = heads_kv;
  params.group = 16;
  params.latent_stride = params.rope_stride = 2 * (latent + heads_kv * rope);
  return params;
}

TEST(LatentPlan, FitsTheDevice) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kFp8E4M3}) {
    for (const int architecture : {80, 89, 90}) {
      for (const int32_t latent : {16, 128, 144, 512}) {
        for (const int32_t heads_kv : {1, 2, 3, 8}) {
          const int64_t limit = SharedLimit(architecture);
          const LatentPlan plan = PlanLatent(dtype, ParamsOf(latent, 64, heads_kv), limit);
          ASSERT_TRUE(plan.ok());
          EXPECT_LE(plan.shared_bytes, limit);
          EXPECT_GE(plan.stages, 2);
          EXPECT_EQ(plan.width, latent <= 128 ? 128 : 512);
          EXPECT_EQ(plan.units, latent > 128 && architecture == 89 ? 2 : 4);
          EXPECT_EQ(plan.rope_heads, std::min(heads_kv, plan.units));
        }
      }
    }
  }
  // Two stages in flight beside the one at work where there is room.
  EXPECT_EQ(PlanLatent(DType::kBF16, ParamsOf(512, 64, 8), SharedLimit(90)).stages, 3);
  EXPECT_EQ(PlanLatent(DType::kBF16, ParamsOf(512, 64, 1), SharedLimit(90)).stages, 4);
  EXPECT_FALSE(PlanLatent(DType::kBF16, ParamsOf(512, 64, 8), 48 << 10).ok());
}

TEST(LatentPlan, OtherShapesHaveNoKernel) {
  const int64_t limit = SharedLimit(90);
  EXPECT_FALSE(PlanLatent(DType::kF32, ParamsOf(512, 64, 1), limit).ok());
  EXPECT_FALSE(PlanLatent(DType::kInt8, ParamsOf(512, 64, 1), limit).ok());
  EXPECT_FALSE(PlanLatent(DType::kBF16, ParamsOf(520, 64, 1), limit).ok());
  EXPECT_FALSE(PlanLatent(DType::kBF16, ParamsOf(500, 64, 1), limit).ok());
  EXPECT_FALSE(PlanLatent(DType::kBF16, ParamsOf(512, 72, 1), limit).ok());
  EXPECT_FALSE(PlanLatent(DType::kBF16, ParamsOf(512, 12, 1), limit).ok());
  EXPECT_FALSE(PlanLatent(DType::kFp8E4M3, ParamsOf(504, 64, 1), limit).ok());
  EXPECT_TRUE(PlanLatent(DType::kBF16, ParamsOf(504, 0, 1), limit).ok());
  LatentParams shifted = ParamsOf(512, 64, 1);
  shifted.latent_offset = 8;
  EXPECT_FALSE(PlanLatent(DType::kBF16, shifted, limit).ok());
}

}  // namespace
}  // namespace attnd::kernels::cuda
