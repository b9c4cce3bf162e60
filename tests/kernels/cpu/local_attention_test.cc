// Local attention against the float64 reference, on every instruction set.
#include <gtest/gtest.h>

#include "tests/kernels/attention_case.h"

namespace attnd::kernels {
namespace {

constexpr double kTolerance = 1e-6;
constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kInt8};

class LocalAttentionTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Backend> backend_ = MakeBackend(GetParam(), 2);

  void Expect(LocalCase& c, const std::string& what, double tolerance = kTolerance) {
    c.Store(*backend_);
    EXPECT_TRUE(Close(c.Run(*backend_), c.Want(), tolerance)) << what;
  }
};

TEST_P(LocalAttentionTest, LengthsAroundTilesAndRanges) {
  uint64_t seed = 100;
  for (const int64_t length : {1, 2, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513}) {
    for (const DType dtype : kDTypes) {
      ++seed;
      LocalCase c({4, 2, 16}, dtype, {RowsOf(length - 1, length, 0, 1 << 20)}, seed);
      Expect(c, "length " + std::to_string(length) + ", seed " + std::to_string(seed));
    }
  }
}

TEST_P(LocalAttentionTest, WindowsAndPrefixesInEveryRelation) {
  uint64_t seed = 200;
  for (const int64_t window : {1, 2, 7, 64, 130}) {
    for (const int64_t prefix : {0, 1, 5, 64, 100, 150}) {
      for (const int64_t begin : {0, 5, 63, 140}) {
        const int64_t end = std::max(begin + 37, begin < prefix ? prefix + 3 : 0);
        const DType dtype = kDTypes[seed % 4];
        ++seed;
        LocalCase c({2, 1, 8}, dtype, {RowsOf(begin, end, prefix, window)}, seed);
        Expect(c, "window " + std::to_string(window) + ", prefix " + std::to_string(prefix) +
                      ", rows from " + std::to_string(begin) + ", seed " + std::to_string(seed));
      }
    }
  }
}

TEST_P(LocalAttentionTest, GroupsAndWidths) {
  uint64_t seed = 300;
  for (const int64_t group : {1, 3, 5, 7, 12, 16, 17, 64, 65, 128}) {
    for (const int64_t width : {6, 8, 20, 48, 128, 192}) {
      const DType dtype = kDTypes[seed % 4];
      const int64_t heads_kv = group < 16 ? 2 : 1;
      ++seed;
      LocalCase c({group * heads_kv, heads_kv, width}, dtype,
                  {RowsOf(70, 73, 0, 50), RowsOf(0, 2, 0, 50)}, seed);
      Expect(c, "group " + std::to_string(group) + ", width " + std::to_string(width) + ", seed " +
                    std::to_string(seed));
    }
  }
}

TEST_P(LocalAttentionTest, RaggedBatchesOfRandomShape) {
  for (uint64_t seed = 400; seed < 412; ++seed) {
    Random random(seed);
    std::vector<Intervals> sequences;
    const int64_t window = 1 + random.Below(200);
    const int64_t count = 1 + random.Below(6);
    for (int64_t s = 0; s < count; ++s) {
      const int64_t begin = random.Below(700);
      sequences.push_back(RowsOf(begin, begin + 1 + random.Below(40), 0, window));
    }
    const int64_t group = 1 + random.Below(6);
    LocalCase c({2 * group, 2, 2 + 2 * random.Below(20)}, kDTypes[random.Below(4)], sequences,
                seed);
    Expect(c, "seed " + std::to_string(seed));
  }
}

TEST_P(LocalAttentionTest, PrefillOfManyRowsAndLongHistory) {
  LocalCase prefill({6, 2, 32}, DType::kBF16, {RowsOf(0, 300, 0, 130)}, 500);
  Expect(prefill, "prefill");
  // Long enough to be split, and for one tile to go through several waves of slots.
  LocalCase decode({2, 1, 8}, DType::kF32, {RowsOf(10000, 10001, 0, 1 << 20)}, 501);
  Expect(decode, "decode");
}

TEST_P(LocalAttentionTest, RowsThatSeeNothingAreZero) {
  const Intervals rows = {{3, 3}, {3, 9}, {9, 9}, {9, 90}, {90, 90}};
  LocalCase mixed({4, 2, 16}, DType::kF32, {rows, {{0, 0}}}, 600);
  Expect(mixed, "mixed");
  LocalCase none({4, 2, 16}, DType::kF32, {{{0, 0}, {0, 0}}}, 601);
  Expect(none, "none");
  for (const float value : none.Run(*backend_)) {
    EXPECT_EQ(value, 0);
  }
}

TEST_P(LocalAttentionTest, KeysBetweenTheIntervalsAreNeverRead) {
  // The gaps are poisoned: within a page, and whole pages with entries that point nowhere.
  const Intervals rows = {{0, 10}, {50, 60}, {58, 70}, {1000, 1010}, {1005, 1100}};
  for (const DType dtype : kDTypes) {
    LocalCase c({2, 1, 16}, dtype, {rows}, 700);
    Expect(c, DTypeName(dtype));
  }
}

TEST_P(LocalAttentionTest, ExactlyTheWindowCounts) {
  for (const int64_t window : {1, 2, 7, 64, 130}) {
    const int64_t row = 200;
    // Rows around it, so that the tile holds keys that row 200 must not see.
    LocalCase c({2, 1, 8}, DType::kF32, {RowsOf(row - 3, row + 3, 0, window)}, 800);
    for (const int64_t token : {row - window, row - window + 1}) {
      for (int64_t k = 0; k < 8; ++k) {
        c.Value(0, token, 0)[k] = token == row - window ? 1e30f : 1e3f;
      }
    }
    c.Store(*backend_);
    const std::vector<float> got = c.Run(*backend_);
    EXPECT_TRUE(Close(got, c.Want(), kTolerance)) << window;
    const float of_row = got[3 * 2 * 8];
    EXPECT_LT(of_row, 1e4f) << "key i - W is seen, window " << window;
    EXPECT_GT(of_row, 1e3f / 200) << "key i - W + 1 is not seen, window " << window;
  }
}

TEST_P(LocalAttentionTest, HugeLogits) {
  for (const float magnitude : {1e5f, 1e10f, 1e30f}) {
    for (const float sign : {1.0f, -1.0f}) {
      LocalCase c({2, 1, 4}, DType::kF32, {RowsOf(150, 152, 0, 140)}, 900);
      c.scale = 1;
      for (float& q : c.query()) {
        q = sign;
      }
      // Scores are multiples of `magnitude` that float32 tells apart.
      for (int64_t token = 11; token < 152; ++token) {
        for (int64_t k = 0; k < 4; ++k) {
          c.Key(0, token, 0)[k] = magnitude * static_cast<float>(1 + token % 5);
        }
      }
      Expect(c, "logits of " + std::to_string(sign * magnitude));
    }
  }
}

TEST_P(LocalAttentionTest, FirstTileMaskedThenDeeplyNegativeLogits) {
  // Row 0 of the tile sees the first page alone, row 1 the second alone.
  LocalCase c({1, 1, 4}, DType::kF32, {{{0, 64}, {64, 128}}}, 950);
  c.scale = 1;
  for (float& q : c.query()) {
    q = -1e4f;
  }
  for (int64_t token = 64; token < 128; ++token) {
    for (int64_t k = 0; k < 4; ++k) {
      c.Key(0, token, 0)[k] = static_cast<float>(token == 100 ? 1 : 2);
    }
  }
  Expect(c, "masked tile first");
}

INSTANTIATE_TEST_SUITE_P(Isas, LocalAttentionTest, ::testing::ValuesIn(CpuIsas()),
                         [](const auto& isa) { return isa.param; });

}  // namespace
}  // namespace attnd::kernels
