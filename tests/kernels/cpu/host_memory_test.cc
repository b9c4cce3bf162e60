#include "kernels/cpu/host_memory.h"

#include <gtest/gtest.h>

#include "tests/kernels/attention_case.h"

namespace attnd::kernels {
namespace {

TEST(HostMemoryTest, MappedMemoryIsZeroAndDiscardGivesPagesBack) {
  auto memory = MapMemory("the test", 1 << 20);
  ASSERT_TRUE(memory.ok());
  uint8_t* data = (*memory)->data();
  for (int64_t i = 0; i < 1 << 20; i += 1000) {
    ASSERT_EQ(data[i], 0);
  }
  std::fill_n(data, 1 << 20, uint8_t{7});
  // Whole system pages within the range go; the bytes around it stay.
  (*memory)->Discard(5000, 100000);
  EXPECT_EQ(data[4999], 7);
  EXPECT_EQ(data[105000], 7);
  EXPECT_EQ(data[50000], 0);
  (*memory)->Discard(200000, 10);
  EXPECT_EQ(data[200005], 7);
}

TEST(HostMemoryTest, RefusalsNameThePurposeAndTheBytes) {
  const auto mapped = MapMemory("the key cache", INT64_MAX).status();
  EXPECT_EQ(mapped.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(mapped.message()).find("the key cache"), std::string::npos);
  EXPECT_NE(std::string(mapped.message()).find(std::to_string(INT64_MAX)), std::string::npos);
  AlignedArray<float> array;
  EXPECT_EQ(array.Allocate("an array", int64_t{1} << 62).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(array.Allocate("an array", -1).code(), absl::StatusCode::kResourceExhausted);
}

TEST(HostMemoryTest, ArraysAreAligned) {
  for (const int64_t count : {0, 1, 17, 1000}) {
    AlignedArray<float> array;
    ASSERT_TRUE(array.Allocate("an array", count).ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(array.get()) % 64, 0u);
    EXPECT_EQ(array.size(), count);
  }
}

// Pages beyond 4 GiB, in a mapping of which almost nothing is touched.
TEST(HostMemoryTest, PoolsBeyondFourGiB) {
  auto backend = MakeBackend("best", 2);
  auto pool = backend->Allocate("the pool", int64_t{6} << 30);
  ASSERT_TRUE(pool.ok());
  const LocalShape shape{2, 1, 16};
  ASSERT_TRUE(backend->Prepare({1, 1, 64}, &shape, nullptr).ok());
  const int64_t page = (int64_t{5} << 30) + 4096;
  const int32_t slot = 9;
  uint8_t not_finite = 0;
  const std::vector<float> key(16, 1.0f);
  const std::vector<float> value(16, 3.5f);
  backend->AppendLocal({shape,
                        {(*pool)->data(), DType::kF32, &page, &slot, &not_finite, 1},
                        key.data(),
                        value.data()});
  const AttentionSequence sequence{&page, 0, 0, 1};
  const int64_t lo = 9;
  const int64_t hi = 10;
  const std::vector<float> query(32, 1.0f);
  std::vector<float> output(32, kNoNumber);
  LocalAttentionParams params;
  params.shape = shape;
  params.batch = {(*pool)->data(), DType::kF32, &sequence, 1, &lo, &hi, 1.0f};
  params.query = query.data();
  params.output = output.data();
  backend->LocalAttention(params);
  EXPECT_TRUE(SameBits(output, std::vector<float>(32, 3.5f)));
}

}  // namespace
}  // namespace attnd::kernels
