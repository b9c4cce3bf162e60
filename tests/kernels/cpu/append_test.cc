// New rows in the pages: place, rounding, and the mark of what is not finite.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/cache_layout.h"
#include "kernels/convert.h"
#include "tests/kernels/attention_case.h"

namespace attnd::kernels {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

struct Pool {
  std::vector<uint8_t> bytes;
  DType dtype;
  // Element `index` of the page at byte `page`.
  float At(int64_t page, int64_t index) const {
    float value = 0;
    ToFloat(dtype, bytes.data() + page + index * DTypeSize(dtype), 1, &value);
    return value;
  }
};

TEST(AppendTest, LocalRowsLieByKindHeadAndSlot) {
  const LocalShape shape{4, 2, 6};
  for (const DType dtype : kDTypes) {
    const int64_t page_bytes = PageBytes(shape, dtype);
    Pool pool{std::vector<uint8_t>(static_cast<size_t>(3 * page_bytes), 0xff), dtype};
    Random random(1);
    const std::vector<float> key = random.Floats(2 * 2 * 6);
    const std::vector<float> value = random.Floats(2 * 2 * 6);
    const int64_t page[] = {2 * page_bytes, 0};
    const int32_t slot[] = {63, 5};
    uint8_t not_finite[] = {0, 0};
    AppendLocalParams params{
        shape, {pool.bytes.data(), dtype, page, slot, not_finite, 2}, key.data(), value.data()};
    MakeBackend("best", 2)->AppendLocal(params);
    const std::vector<float> stored_key = Rounded(dtype, key);
    const std::vector<float> stored_value = Rounded(dtype, value);
    int64_t numbers = 0;
    for (int64_t p = 0; p < 3; ++p) {
      for (int64_t i = 0; i < shape.row_elements() * kPageTokens; ++i) {
        numbers += std::isnan(pool.At(p * page_bytes, i)) ? 0 : 1;
      }
    }
    EXPECT_EQ(numbers, 2 * shape.row_elements()) << "nothing else is written";
    for (int64_t row = 0; row < 2; ++row) {
      EXPECT_EQ(not_finite[row], 0);
      for (int64_t head = 0; head < 2; ++head) {
        for (int64_t k = 0; k < 6; ++k) {
          const size_t from = static_cast<size_t>((row * 2 + head) * 6 + k);
          const int64_t at = (head * 64 + slot[row]) * 6 + k;
          EXPECT_EQ(pool.At(page[row], at), stored_key[from]);
          EXPECT_EQ(pool.At(page[row], 2 * 64 * 6 + at), stored_value[from]);
        }
      }
    }
  }
}

TEST(AppendTest, GlobalRowsAreLatentThenRopeKeys) {
  const GlobalShape shape{4, 2, 8, 4, 10};
  for (const DType dtype : kDTypes) {
    const int64_t page_bytes = PageBytes(shape, dtype);
    Pool pool{std::vector<uint8_t>(static_cast<size_t>(2 * page_bytes), 0xff), dtype};
    Random random(2);
    const std::vector<float> latent = Rounded(dtype, random.Floats(10));
    const std::vector<float> rope = Rounded(dtype, random.Floats(8));
    const int64_t page = page_bytes;
    const int32_t slot = 17;
    uint8_t not_finite = 0;
    AppendGlobalParams params{shape,
                              {pool.bytes.data(), dtype, &page, &slot, &not_finite, 1},
                              latent.data(),
                              rope.data()};
    MakeBackend("best", 1)->AppendGlobal(params);
    EXPECT_EQ(not_finite, 0);
    for (int64_t k = 0; k < 18; ++k) {
      const float want =
          k < 10 ? latent[static_cast<size_t>(k)] : rope[static_cast<size_t>(k - 10)];
      EXPECT_EQ(pool.At(page, 17 * 18 + k), want) << k;
    }
    EXPECT_TRUE(std::isnan(pool.At(page, 17 * 18 - 1)));
    EXPECT_TRUE(std::isnan(pool.At(page, 18 * 18)));
  }
}

TEST(AppendTest, RowsThatAreNotFiniteAsStoredAreMarked) {
  const GlobalShape shape{1, 1, 2, 2, 2};
  const std::vector<float> latent = {1, 2, kNoNumber, 1, 1, 70000, 1, 1};
  const std::vector<float> rope = {1, 2, 1, 1, 1, 1, 1, -INFINITY};
  for (const DType dtype : kDTypes) {
    std::vector<uint8_t> pool(static_cast<size_t>(4 * 64 * DTypeSize(dtype)));
    const int64_t page[] = {0, 0, 0, 0};
    const int32_t slot[] = {0, 1, 2, 3};
    uint8_t not_finite[] = {1, 0, 0, 0};  // a mark is never cleared
    AppendGlobalParams params{
        shape, {pool.data(), dtype, page, slot, not_finite, 4}, latent.data(), rope.data()};
    MakeBackend("best", 1)->AppendGlobal(params);
    EXPECT_EQ(not_finite[0], 1);
    EXPECT_EQ(not_finite[1], 1);
    EXPECT_EQ(not_finite[2], dtype == DType::kF16 ? 1 : 0) << "70000 overflows f16 alone";
    EXPECT_EQ(not_finite[3], 1);
  }
}

}  // namespace
}  // namespace attnd::kernels
