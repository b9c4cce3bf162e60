// exp and the rotation, on every instruction set.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/cpu/kernel_table.h"
#include "tests/kernels/attention_case.h"

namespace attnd::kernels {
namespace {

class ElementwiseTest : public ::testing::TestWithParam<std::string> {
 protected:
  const KernelTable& Table() const {
    for (const KernelTable* table : KernelTables()) {
      if (GetParam() == table->name) {
        return *table;
      }
    }
    throw std::logic_error("no such table");
  }
};

TEST_P(ElementwiseTest, ExpIsWithinTwoUlp) {
  std::vector<float> x;
  for (float value = 0; value >= -87.0f; value -= 1.0f / 512) {
    x.push_back(value);
    x.push_back(std::nextafter(value, -1000.0f));
  }
  std::vector<float> y(x.size());
  Table().exp(x.data(), static_cast<int64_t>(x.size()), y.data());
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i] < -87.0f) {
      continue;
    }
    const double want = std::exp(static_cast<double>(x[i]));
    const double ulp = std::ldexp(1.0, std::ilogb(want) - 23);
    worst = std::max(worst, std::abs(y[i] - want) / ulp);
  }
  EXPECT_LE(worst, 2.0);
  RecordProperty("worst_ulp", std::to_string(worst));
}

TEST_P(ElementwiseTest, ExpOfTheEnds) {
  const float x[] = {0.0f, -0.0f, -INFINITY, -87.5f, -1e30f, kNoNumber};
  float y[6];
  Table().exp(x, 6, y);
  EXPECT_EQ(y[0], 1.0f);
  EXPECT_EQ(y[1], 1.0f);
  for (int i = 2; i < 5; ++i) {
    EXPECT_EQ(y[i], 0.0f) << x[i];
    EXPECT_FALSE(std::signbit(y[i]));
  }
  EXPECT_TRUE(std::isnan(y[5]));
}

TEST_P(ElementwiseTest, RopeRotatesInterleavedPairs) {
  auto backend = MakeBackend(GetParam(), 2);
  Random random(3);
  for (const int64_t half : {1, 3, 4, 8, 13, 16, 32, 33}) {
    const int64_t rows = 3;
    const int64_t heads = 5;
    std::vector<float> x = random.Floats(rows * heads * 2 * half);
    const std::vector<float> cos = random.Floats(rows * half);
    const std::vector<float> sin = random.Floats(rows * half);
    std::vector<double> want;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t head = 0; head < heads; ++head) {
        for (int64_t t = 0; t < half; ++t) {
          const size_t pair = static_cast<size_t>(((row * heads + head) * half + t) * 2);
          const double c = cos[static_cast<size_t>(row * half + t)];
          const double s = sin[static_cast<size_t>(row * half + t)];
          want.push_back(x[pair] * c - x[pair + 1] * s);
          want.push_back(x[pair + 1] * c + x[pair] * s);
        }
      }
    }
    backend->Rope({x.data(), cos.data(), sin.data(), rows, heads, half});
    EXPECT_TRUE(Close(x, want, 2e-7)) << half;
  }
}

TEST_P(ElementwiseTest, RopeOfManyRows) {
  auto backend = MakeBackend(GetParam(), 3);
  const int64_t rows = 700;
  std::vector<float> x(static_cast<size_t>(rows * 8 * 32), 1.0f);
  const std::vector<float> cos(static_cast<size_t>(rows * 16), 0.0f);
  const std::vector<float> sin(static_cast<size_t>(rows * 16), 1.0f);
  backend->Rope({x.data(), cos.data(), sin.data(), rows, 8, 16});
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(x[i], i % 2 == 0 ? -1.0f : 1.0f);
  }
}

TEST_P(ElementwiseTest, WidenAgreesWithConvert) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    std::vector<uint16_t> bits;
    for (int i = 0; i < 65536; ++i) {
      bits.push_back(static_cast<uint16_t>(i));
    }
    for (const int64_t n : {int64_t{65536}, int64_t{7}, int64_t{33}}) {
      std::vector<float> got(static_cast<size_t>(n));
      Table().widen(dtype, bits.data(), 1, n, got.data());
      for (int64_t i = 0; i < n; ++i) {
        const float back = got[static_cast<size_t>(i)];
        const uint16_t value = bits[static_cast<size_t>(i)];
        const std::vector<uint8_t> stored = Stored(dtype, {back});
        uint16_t again;
        std::memcpy(&again, stored.data(), sizeof(again));
        const int infinity = dtype == DType::kF16 ? 0x7c00 : 0x7f80;
        if ((value & 0x7fff) > infinity) {
          ASSERT_TRUE(std::isnan(back)) << value;
        } else {
          ASSERT_EQ(again, value);
        }
      }
    }
  }
}

TEST_P(ElementwiseTest, Int8IsWidenedTimesItsScale) {
  std::vector<int8_t> units(256);
  for (int i = 0; i < 256; ++i) {
    units[static_cast<size_t>(i)] = static_cast<int8_t>(i - 128);
  }
  for (const float scale : {0.0f, 1.0f, 0.3f, 1e-30f, 2e36f}) {
    for (const int64_t n : {256, 255, 33, 7, 1}) {
      std::vector<float> got(static_cast<size_t>(n + 1), kNoNumber);
      Table().widen(DType::kInt8, units.data(), scale, n, got.data());
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(got[static_cast<size_t>(i)], static_cast<float>(i - 128) * scale);
      }
      EXPECT_TRUE(std::isnan(got.back())) << "nothing else is written";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, ElementwiseTest, ::testing::ValuesIn(CpuIsas()),
                         [](const auto& isa) { return isa.param; });

}  // namespace
}  // namespace attnd::kernels
