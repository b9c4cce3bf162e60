#include "core/random_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <cmath>
#include <cstring>
#include <vector>

namespace attnd {
namespace {

using ::testing::HasSubstr;

// The documented bytes, hashed by the library as any other program would.
float Element(uint64_t seed, const std::string& name, int64_t in, uint64_t index) {
  const uint64_t digest = XXH3_64bits_withSeed(name.data(), name.size(), seed);
  unsigned char block[16];
  for (int byte = 0; byte < 8; ++byte) {
    block[byte] = static_cast<unsigned char>(digest >> (8 * byte));
    block[8 + byte] = static_cast<unsigned char>(index >> (8 * byte));
  }
  const int64_t u = static_cast<int64_t>(XXH3_64bits(block, 16) >> 40);
  const float step = static_cast<float>(1.5 * std::sqrt(3.0 / in) / 16777216.0);
  return static_cast<float>(2 * u + 1 - 16777216) * step;
}

TEST(RandomWeights, AreAsDocumented) {
  const std::string name = "blocks.5.attn.W_UK.weight";
  std::vector<float> made(1000);
  FillRandomWeights(42, name, 96, 1000, made.data());
  for (uint64_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(made[i], Element(42, name, 96, i)) << i;
  }
}

// Bits fixed for ever: a change here changes every random model.
TEST(RandomWeights, NeverChange) {
  std::vector<float> made(3);
  FillRandomWeights(1, "blocks.0.attn.W_Q.weight", 512, 3, made.data());
  std::vector<uint32_t> bits(3);
  std::memcpy(bits.data(), made.data(), 12);
  EXPECT_THAT(bits, ::testing::ElementsAre(3163346855u, 1029958201u, 1034000216u));
}

TEST(RandomWeights, AreUniformWithinTheirBound) {
  constexpr int64_t kCount = 200000;
  std::vector<float> made(kCount);
  FillRandomWeights(7, "blocks.0.attn.W_Q.weight", 512, kCount, made.data());
  const double bound = 1.5 * std::sqrt(3.0 / 512);
  double sum = 0;
  double squares = 0;
  std::vector<int64_t> deciles(10);
  for (const float value : made) {
    ASSERT_LE(std::abs(value), bound * (1 + 1e-6));
    sum += value;
    squares += static_cast<double>(value) * value;
    ++deciles[std::min(9, static_cast<int>((value / bound + 1) * 5))];
  }
  // Five standard deviations of each figure.
  EXPECT_NEAR(sum / kCount, 0, 5 * bound / std::sqrt(3.0 * kCount));
  EXPECT_NEAR(squares / kCount, 1.5 * 1.5 / 512, 0.01 * 1.5 * 1.5 / 512);
  for (const int64_t count : deciles) {
    EXPECT_NEAR(count, kCount / 10, 5 * std::sqrt(kCount * 0.09));
  }
}

TEST(RandomWeights, DependOnSeedAndName) {
  const auto first = [](uint64_t seed, const std::string& name) {
    float value = 0;
    FillRandomWeights(seed, name, 64, 1, &value);
    return value;
  };
  EXPECT_NE(first(1, "a"), first(2, "a"));
  EXPECT_NE(first(1, "a"), first(1, "b"));
  EXPECT_EQ(first(1, "a"), first(1, "a"));
}

TEST(RandomWeights, SourceKeepsTensorsUntilReleased) {
  const auto source = OpenRandomWeights("random:7").value();
  EXPECT_EQ(source->description(), "random:7");
  EXPECT_EQ(source->dtype(), DType::kF32);
  EXPECT_TRUE(source->generated());
  const TensorSpec a{"a", 3, 5};
  const TensorSpec b{"b", 7, 2};
  const TensorView first = source->Tensor(a).value();
  const float value = static_cast<const float*>(first.data)[14];
  EXPECT_EQ(first.out, 3);
  EXPECT_EQ(first.in, 5);
  ASSERT_TRUE(source->Tensor(b).ok());
  EXPECT_EQ(source->Tensor(a)->data, first.data);
  EXPECT_EQ(value, Element(7, "a", 5, 14));
  source->Release();
  EXPECT_EQ(static_cast<const float*>(source->Tensor(a)->data)[14], value);
}

TEST(RandomWeights, SeedsAreWholeNumbers) {
  EXPECT_EQ(OpenRandomWeights("random:18446744073709551615").value()->description(),
            "random:18446744073709551615");
  EXPECT_EQ(OpenRandomWeights("random:007").value()->description(), "random:7");
  for (const char* bad : {"random:", "random:-1", "random:1.5", "random:18446744073709551616",
                          "random:one", "random: 1", "random:1 ", "random:0x10"}) {
    const auto source = OpenRandomWeights(bad);
    ASSERT_FALSE(source.ok()) << bad;
    EXPECT_THAT(std::string(source.status().message()), HasSubstr(bad));
    EXPECT_THAT(std::string(source.status().message()), HasSubstr("expected random:SEED"));
  }
}

}  // namespace
}  // namespace attnd
