// Global attention over a shadow of decompressed keys and values, against the float64 reference.
#include <gtest/gtest.h>

#include "tests/kernels/attention_case.h"

namespace attnd::kernels {
namespace {

constexpr double kTolerance = 1e-6;
constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

class ShadowAttentionTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Backend> backend_ = MakeBackend(GetParam(), 2);

  void Expect(GlobalCase& c, const std::string& what) {
    c.Store(*backend_);
    EXPECT_TRUE(Close(c.RunShadow(*backend_), c.Want(), kTolerance)) << what;
  }
};

TEST_P(ShadowAttentionTest, LengthsAroundPagesRangesAndBlocks) {
  uint64_t seed = 600;
  for (const int64_t length : {1, 63, 64, 65, 129, 255, 257, 511, 512, 513, 1030}) {
    const DType dtype = kDTypes[seed % 3];
    ++seed;
    GlobalCase c({4, 2, 8, 4, 16}, dtype, kDTypes[seed / 3 % 3], {RowsOf(length - 1, length, 0, 0)},
                 seed);
    Expect(c, "length " + std::to_string(length) + ", seed " + std::to_string(seed));
  }
}

TEST_P(ShadowAttentionTest, GroupsAndOddWidths) {
  struct Widths {
    int64_t head, rope, latent;
  };
  uint64_t seed = 700;
  for (const int64_t group : {1, 3, 5, 12, 16, 128}) {
    // The last has keys that are wider than a latent.
    for (const Widths w :
         {Widths{20, 6, 28}, Widths{6, 2, 10}, Widths{32, 16, 64}, Widths{16, 64, 8}}) {
      const int64_t heads_kv = group < 16 ? 2 : 1;
      ++seed;
      GlobalCase c({group * heads_kv, heads_kv, w.head, w.rope, w.latent}, kDTypes[seed % 3],
                   kDTypes[seed / 3 % 3], {RowsOf(66, 69, 0, 0), RowsOf(0, 1, 0, 0)}, seed);
      Expect(c, "group " + std::to_string(group) + ", latent " + std::to_string(w.latent) +
                    ", seed " + std::to_string(seed));
    }
  }
}

TEST_P(ShadowAttentionTest, RaggedBatchWithEmptyRowsAndGaps) {
  const Intervals gaps = {{0, 0}, {0, 10}, {10, 10}, {50, 60}, {1000, 1100}, {1100, 1100}};
  for (const DType dtype : kDTypes) {
    GlobalCase c({4, 2, 8, 4, 20}, dtype, dtype,
                 {RowsOf(0, 5, 0, 0), gaps, {{0, 0}}, RowsOf(600, 640, 0, 0)}, 800);
    Expect(c, DTypeName(dtype));
  }
}

TEST_P(ShadowAttentionTest, BitsDependNeitherOnTheBatchNorOnHowTheShadowWasFilled) {
  GlobalCase c({32, 2, 16, 8, 24}, DType::kBF16, DType::kF32,
               {RowsOf(1500, 1501, 0, 0), RowsOf(90, 93, 0, 0)}, 900);
  c.Store(*backend_);
  const std::vector<float> whole = c.RunShadow(*backend_);
  EXPECT_EQ(c.RunShadow(*backend_, 1), whole);
  EXPECT_EQ(c.RunShadow(*backend_, 37), whole);
  const std::vector<float> second = c.RunShadow(*backend_, INT64_MAX, 1);
  const auto from = static_cast<int64_t>(32 * 16);  // behind the first sequence's one row
  EXPECT_TRUE(std::equal(second.begin() + from, second.end(), whole.begin() + from));
  const auto alone = MakeBackend(GetParam(), 1);
  EXPECT_EQ(c.RunShadow(*alone), whole);
}

INSTANTIATE_TEST_SUITE_P(Isas, ShadowAttentionTest, ::testing::ValuesIn(CpuIsas()),
                         [](const auto& isa) { return isa.param; });

}  // namespace
}  // namespace attnd::kernels
