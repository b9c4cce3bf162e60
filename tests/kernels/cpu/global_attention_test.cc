// Global attention, absorbed, expanded and over a shadow, against the float64 reference and each
// other.
#include <gtest/gtest.h>

#include "tests/kernels/attention_case.h"

namespace attnd::kernels {
namespace {

constexpr double kTolerance = 1e-6;
// The absorbed form cancels otherwise: its intermediate values are larger than its results.
constexpr double kAbsorbedTolerance = 2e-6;
// Those of weights first.
constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kInt8};

class GlobalAttentionTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Backend> backend_ = MakeBackend(GetParam(), 2);

  void Expect(GlobalCase& c, const std::string& what) {
    c.Store(*backend_);
    const std::vector<double> want = c.Want();
    EXPECT_TRUE(Close(c.RunExpanded(*backend_), want, kTolerance)) << "expanded, " << what;
    EXPECT_TRUE(Close(c.RunAbsorbed(*backend_), want, kAbsorbedTolerance)) << "absorbed, " << what;
    EXPECT_TRUE(Close(c.RunShadow(*backend_), want, kTolerance)) << "shadow, " << what;
  }
};

TEST_P(GlobalAttentionTest, LengthsAroundTilesRangesAndBlocks) {
  uint64_t seed = 100;
  for (const int64_t length : {1, 63, 64, 65, 129, 255, 257, 511, 512, 513, 1030}) {
    const DType dtype = kDTypes[seed % 4];
    ++seed;
    GlobalCase c({4, 2, 8, 4, 16}, dtype, kDTypes[seed / 4 % 3], {RowsOf(length - 1, length, 0, 0)},
                 seed);
    Expect(c, "length " + std::to_string(length) + ", seed " + std::to_string(seed));
  }
}

TEST_P(GlobalAttentionTest, GroupsAndOddWidths) {
  struct Widths {
    int64_t head, rope, latent;
  };
  uint64_t seed = 200;
  for (const int64_t group : {1, 3, 5, 7, 12, 16, 128}) {
    // The last has keys that are wider than a latent.
    for (const Widths w :
         {Widths{20, 6, 28}, Widths{6, 2, 10}, Widths{32, 16, 64}, Widths{16, 64, 8}}) {
      const int64_t heads_kv = group < 16 ? 2 : 1;
      ++seed;
      GlobalCase c({group * heads_kv, heads_kv, w.head, w.rope, w.latent}, kDTypes[seed % 4],
                   kDTypes[seed / 4 % 3], {RowsOf(66, 69, 0, 0), RowsOf(0, 1, 0, 0)}, seed);
      Expect(c, "group " + std::to_string(group) + ", latent " + std::to_string(w.latent) +
                    ", seed " + std::to_string(seed));
    }
  }
}

TEST_P(GlobalAttentionTest, PrefixesAndChunks) {
  uint64_t seed = 300;
  for (const int64_t prefix : {0, 1, 40, 64, 100}) {
    for (const int64_t begin : {0, 39, 64}) {
      const int64_t end = std::max(begin + 20, begin < prefix ? prefix + 3 : 0);
      ++seed;
      GlobalCase c({3, 1, 8, 4, 12}, kDTypes[seed % 4], DType::kF32,
                   {RowsOf(begin, end, prefix, 0)}, seed);
      Expect(c, "prefix " + std::to_string(prefix) + ", rows from " + std::to_string(begin));
    }
  }
}

TEST_P(GlobalAttentionTest, RaggedBatchWithEmptyRowsAndGaps) {
  const Intervals gaps = {{0, 0}, {0, 10}, {10, 10}, {50, 60}, {1000, 1100}, {1100, 1100}};
  for (const DType dtype : kDTypes) {
    GlobalCase c({4, 2, 8, 4, 20}, dtype, dtype == DType::kInt8 ? DType::kF32 : dtype,
                 {RowsOf(0, 5, 0, 0), gaps, {{0, 0}}, RowsOf(600, 640, 0, 0)}, 400);
    Expect(c, DTypeName(dtype));
  }
}

TEST_P(GlobalAttentionTest, BothFormsAgree) {
  GlobalCase c({8, 2, 16, 8, 32}, DType::kF32, DType::kF32, {RowsOf(700, 730, 0, 0)}, 500);
  c.Store(*backend_);
  const std::vector<float> expanded = c.RunExpanded(*backend_);
  EXPECT_TRUE(Close(c.RunAbsorbed(*backend_), {expanded.begin(), expanded.end()}, 2e-6));
}

INSTANTIATE_TEST_SUITE_P(Isas, GlobalAttentionTest, ::testing::ValuesIn(CpuIsas()),
                         [](const auto& isa) { return isa.param; });

}  // namespace
}  // namespace attnd::kernels
