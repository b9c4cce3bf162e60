// Rows of the cache in pages: exact bytes, nothing overlaps, and int8 with its error bound.
#include "kernels/cache_layout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/convert.h"
#include "tests/kernels/compare.h"

namespace attnd::kernels {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kInt8, DType::kFp8E4M3};

// Counts how often each byte of a page belongs to a row or a scale.
class Bytes {
 public:
  explicit Bytes(int64_t page_bytes) : uses_(static_cast<size_t>(page_bytes)) {}

  void Use(const PageRows& rows, int64_t width) {
    for (int64_t slot = 0; slot < kPageTokens; ++slot) {
      Use(rows.offset + slot * rows.stride, width * DTypeSize(rows.dtype), rows.end);
      if (HasRowScales(rows.dtype)) {
        EXPECT_EQ(rows.scales % 4, 0);
        Use(rows.scales + slot * 4, 4, rows.end);
      }
    }
  }
  void ExpectEachOnce() const {
    for (const int uses : uses_) {
      ASSERT_EQ(uses, 1);
    }
  }

 private:
  void Use(int64_t begin, int64_t count, int64_t end) {
    ASSERT_LE(begin + count, end);
    for (int64_t i = begin; i < begin + count; ++i) {
      ++uses_.at(static_cast<size_t>(i));
    }
  }
  std::vector<int> uses_;
};

TEST(CacheLayoutTest, RowsAndScalesFillThePageOnce) {
  for (const DType dtype : kDTypes) {
    for (const LocalShape& shape : {LocalShape{4, 2, 6}, LocalShape{3, 3, 1}, {16, 8, 128}}) {
      Bytes bytes(PageBytes(shape, dtype));
      for (int64_t head = 0; head < shape.heads_kv; ++head) {
        bytes.Use(KeyRows(shape, dtype, head), shape.d_head);
        bytes.Use(ValueRows(shape, dtype, head), shape.d_head);
      }
      bytes.ExpectEachOnce();
    }
    for (const GlobalShape& shape : {GlobalShape{4, 2, 8, 4, 10}, {3, 3, 8, 2, 7}}) {
      Bytes bytes(PageBytes(shape, dtype));
      bytes.Use(LatentRows(shape, dtype), shape.d_latent);
      bytes.Use(RopeRows(shape, dtype), shape.heads_kv * shape.d_rope);
      bytes.ExpectEachOnce();
    }
  }
}

TEST(CacheLayoutTest, BytesPerToken) {
  const LocalShape local{128, 8, 128};
  const GlobalShape global{128, 8, 128, 64, 512};
  EXPECT_EQ(TokenBytes(local, DType::kF32), 8192);
  EXPECT_EQ(TokenBytes(local, DType::kBF16), 4096);
  EXPECT_EQ(TokenBytes(local, DType::kInt8), 2112);
  EXPECT_EQ(TokenBytes(global, DType::kF16), 2048);
  EXPECT_EQ(TokenBytes(global, DType::kInt8), 512 + 4 + 1024);
  EXPECT_EQ(PageBytes(global, DType::kInt8), 64 * 1540);
  EXPECT_EQ(TokenBytes(local, DType::kFp8E4M3), 4096);
  EXPECT_EQ(TokenBytes(global, DType::kFp8E4M3), 512 + 4 + 1024);
}

struct Row {
  std::vector<int8_t> units;
  float scale = 0;
  bool finite = false;
};

Row Quantized(const std::vector<float>& values) {
  Row row{std::vector<int8_t>(values.size()), kNoNumber, false};
  row.finite =
      Quantize(values.data(), static_cast<int64_t>(values.size()), row.units.data(), &row.scale);
  return row;
}

// The bound that README.md states, on the row as attention reads it: a float32 product.
void ExpectWithinBound(const std::vector<float>& values) {
  const Row row = Quantized(values);
  ASSERT_TRUE(row.finite);
  double largest = 0;
  for (const float value : values) {
    largest = std::max(largest, std::abs(double{value}));
  }
  const double bound = std::max(largest * (1.0 / 254 + 0x1p-23), 0x1p-127);
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_GE(row.units[i], -127);
    const float read = static_cast<float>(row.units[i]) * row.scale;
    ASSERT_LE(std::abs(double{read} - double{values[i]}), bound) << i << ": " << values[i];
  }
}

TEST(QuantizeTest, EveryElementIsWithinTheBound) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    const int64_t width = 1 + random.Below(300);
    std::vector<float> values = random.Floats(width);
    // Maxima over the whole range of float32, subnormal ones too.
    const int exponent = static_cast<int>(random.Below(276)) - 148;
    for (float& value : values) {
      value = std::ldexp(value, exponent);
    }
    SCOPED_TRACE("seed " + std::to_string(seed) + ", 2^" + std::to_string(exponent));
    ExpectWithinBound(values);
  }
}

TEST(QuantizeTest, OneHugeValueCostsTheOthersButNoOtherRow) {
  std::vector<float> values = Random(7).Floats(128);
  values[77] = 1e30f;
  ExpectWithinBound(values);
  const Row row = Quantized(values);
  EXPECT_EQ(row.units[77], 127);
  EXPECT_EQ(row.units[76], 0);
}

TEST(QuantizeTest, HalvesGoToEven) {
  // 127 makes the scale exactly 1.
  std::vector<float> values = {127};
  for (int i = -126; i < 126; ++i) {
    values.push_back(static_cast<float>(i) + 0.5f);
  }
  const Row row = Quantized(values);
  EXPECT_EQ(row.scale, 1.0f);
  for (size_t i = 1; i < values.size(); ++i) {
    EXPECT_EQ(row.units[i], std::nearbyint(values[i])) << values[i];
    EXPECT_EQ(row.units[i] % 2, 0) << values[i];
  }
  ExpectWithinBound(values);
}

TEST(QuantizeTest, BothSignsReach127AndNoneMore) {
  const Row row = Quantized({-3e-3f, 3e-3f, 0, -0.0f, 1e-3f, -1e-3f});
  EXPECT_EQ(row.units, (std::vector<int8_t>{-127, 127, 0, 0, 42, -42}));
}

TEST(QuantizeTest, ARowOfZerosHasScaleZero) {
  const Row row = Quantized({0, -0.0f, 0});
  EXPECT_TRUE(row.finite);
  EXPECT_EQ(row.scale, 0);
  EXPECT_EQ(row.units, (std::vector<int8_t>{0, 0, 0}));
}

TEST(QuantizeTest, SubnormalRowsKeepTheSmallestScale) {
  for (const float tiny : {1e-45f, 1e-40f, 0x1p-127f, 126.5f * 0x1p-126f, 0x1p-119f}) {
    ExpectWithinBound({tiny, -tiny / 3, tiny / 2, 0});
  }
  EXPECT_EQ(Quantized({1e-45f}).scale, 0x1p-126f);
}

TEST(QuantizeTest, WhatIsNotFiniteIsTold) {
  for (const float bad : {kNoNumber, -kNoNumber, INFINITY, -INFINITY}) {
    for (size_t at = 0; at < 37; ++at) {
      std::vector<float> values(37, 1.0f);
      values[at] = bad;
      EXPECT_FALSE(Quantized(values).finite) << bad << " at " << at;
    }
  }
  // The largest float32 is told apart from what its scale would make infinite.
  const float largest = std::numeric_limits<float>::max();
  const Row row = Quantized({largest, 1});
  EXPECT_EQ(row.finite, std::isfinite(127 * row.scale));
  ExpectWithinBound({largest / 2, -1e38f});
}

TEST(CacheLayoutTest, StoredRowsAreReadBackWithTheirScale) {
  const LocalShape shape{2, 2, 10};
  const PageRows rows = ValueRows(shape, DType::kInt8, 1);
  std::vector<uint8_t> page(static_cast<size_t>(PageBytes(shape, DType::kInt8)), 0xff);
  const std::vector<float> values = Random(3).Floats(10);
  EXPECT_TRUE(StoreRow(rows, 63, values.data(), 10, page.data()));
  const Row row = Quantized(values);
  EXPECT_EQ(ScaleOf(rows, 63, page.data()), row.scale);
  EXPECT_EQ(std::memcmp(page.data() + rows.offset + 63 * rows.stride, row.units.data(), 10), 0);
  EXPECT_TRUE(std::isnan(ScaleOf(rows, 62, page.data()))) << "nothing else is written";
  EXPECT_EQ(ScaleOf(KeyRows(shape, DType::kF16, 0), 3, page.data()), 1);
}

}  // namespace
}  // namespace attnd::kernels
