// Absorbed multi-head latent attention on the emulated device against the float64 reference.
// Queries and rope keys are rounded to the element before both, latents to what is cached, so what
// is left is the rounding of the weights before the second product, and float32 sums. Measured: up
// to 4.2e-3 with bf16 and e4m3 and 2e-4 with f16 (Frobenius, relative).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/kernels/cuda/latent_case.h"

namespace attnd::kernels::cuda {
namespace {

double Tolerance(DType dtype) { return dtype == DType::kF16 ? 5e-4 : 8e-3; }

// The last `rows` rows of a history of so many tokens.
Intervals Last(int64_t rows, int64_t length, int64_t window = 0) {
  return RowsOf(std::max<int64_t>(0, length - rows), length, 0, window);
}

::testing::AssertionResult Near(const LatentCase& c, const std::vector<float>& got) {
  return Close(got, c.Want(), Tolerance(c.dtype()));
}

struct Instance {
  DType dtype;
  int architecture;
  int32_t latent;
  int32_t rope;
};

// All nine instantiations, with widths that fill the kernel's and widths that do not.
const Instance kInstances[] = {
    {DType::kBF16, 90, 512, 64},    {DType::kBF16, 89, 504, 40},    {DType::kBF16, 80, 128, 64},
    {DType::kF16, 80, 512, 64},     {DType::kF16, 89, 136, 8},      {DType::kF16, 90, 24, 0},
    {DType::kFp8E4M3, 90, 512, 64}, {DType::kFp8E4M3, 89, 496, 56}, {DType::kFp8E4M3, 80, 48, 16},
};

std::string NameOf(const ::testing::TestParamInfo<Instance>& info) {
  return std::string(DTypeName(info.param.dtype)) + "_sm" +
         std::to_string(info.param.architecture) + "_" + std::to_string(info.param.latent) + "_" +
         std::to_string(info.param.rope);
}

class LatentTest : public ::testing::TestWithParam<Instance> {
 protected:
  LatentRun OnDevice() const {
    LatentRun run;
    run.architecture = GetParam().architecture;
    return run;
  }
  LatentCase Case(int32_t heads_kv, int32_t group, std::vector<Intervals> sequences) const {
    LatentCase c({heads_kv, group, GetParam().latent, GetParam().rope}, GetParam().dtype,
                 std::move(sequences), 1);
    c.Store();
    return c;
  }
};

INSTANTIATE_TEST_SUITE_P(All, LatentTest, ::testing::ValuesIn(kInstances), NameOf);

// Around tiles of 32 keys and pages, with the order of threads changed.
TEST_P(LatentTest, LengthsAroundTilesAndPages) {
  std::vector<Intervals> sequences;
  for (const int64_t length : {1, 31, 33, 64, 65, 200}) {
    sequences.push_back(Last(1, length));
  }
  const LatentCase c = Case(2, 3, std::move(sequences));
  std::vector<float> first;
  for (const int order : {0, 1, 2}) {
    Stream stream;
    if (order == 0) {
      stream.set_order(emulation::Order::kInOrder);
    } else if (order == 1) {
      stream.set_order(emulation::Order::kReverse);
    } else {
      stream.set_order(7);
    }
    const std::vector<float> got = c.Run(stream, OnDevice());
    EXPECT_EQ(stream.counts().bank_conflicts, 0);
    if (order == 0) {
      EXPECT_TRUE(Near(c, got));
      first = got;
    } else {
      EXPECT_TRUE(SameBits(got, first));
    }
  }
}

// Sequences alone and together, in any order and place, have the same bits under fixed splits.
TEST_P(LatentTest, ARowDoesNotDependOnItsBatch) {
  const LatentCase c = Case(1, 12, {Last(1, 130), Last(3, 65), Last(2, 20)});
  LatentRun run = OnDevice();
  run.split_keys = 64;
  Stream stream;
  const std::vector<float> together = c.Run(stream, run);
  EXPECT_TRUE(Near(c, together));
  run.only = {2, 1, 0};
  run.blocks = 2;
  EXPECT_TRUE(SameBits(c.Run(stream, run), together));
  run.blocks = 1;
  for (int32_t s = 0; s < 3; ++s) {
    run.only = {s};
    EXPECT_TRUE(SameBits(c.Slice(c.Run(stream, run), s), c.Slice(together, s))) << s;
  }
}

// Rows that see different splits, some of them none, and a sequence without rows; more splits than
// keys of a row.
TEST_P(LatentTest, SplitsInAnyNumber) {
  const LatentCase c = Case(1, 5, {Last(8, 132), {{0, 0}}, {}, Last(1, 1), {{3, 3}, {70, 71}}});
  for (const int32_t split_keys : {64, 128, 0}) {
    LatentRun run = OnDevice();
    run.split_keys = split_keys;
    Stream stream;
    EXPECT_TRUE(Near(c, c.Run(stream, run))) << split_keys;
  }
}

struct Heads {
  int32_t heads_kv, group, rows;
};

// Units that are full and that are not, tiles with units of one head and of several.
TEST(LatentHeads, GroupsHeadsAndRows) {
  const Heads all[] = {{1, 1, 1}, {1, 128, 1}, {1, 16, 5}, {2, 7, 8}, {3, 12, 2},
                       {3, 5, 8}, {8, 16, 1},  {8, 1, 2},  {2, 3, 6}, {3, 16, 3}};
  for (const Heads& heads : all) {
    for (const DType dtype : {DType::kBF16, DType::kFp8E4M3}) {
      LatentCase c({heads.heads_kv, heads.group, 64, 32}, dtype,
                   {Last(heads.rows, 40), Last(heads.rows, heads.rows)}, 2);
      c.Store();
      Stream stream;
      EXPECT_TRUE(Near(c, c.Run(stream)))
          << heads.heads_kv << " " << heads.group << " " << heads.rows << " " << DTypeName(dtype);
    }
  }
}

// The shapes that count: 128 heads with a rope key each KV head, and with one for all.
TEST(LatentHeads, LargeShapes) {
  for (const int architecture : {80, 89, 90}) {
    for (const int32_t heads_kv : {8, 1}) {
      LatentCase c({heads_kv, 128 / heads_kv, 512, 64}, DType::kBF16, {Last(1, 70)}, 3);
      c.Store();
      LatentRun run;
      run.architecture = architecture;
      run.split_keys = 64;
      Stream stream;
      EXPECT_TRUE(Near(c, c.Run(stream, run))) << architecture << " " << heads_kv;
    }
  }
}

// Many rows: more than a tile has, whose intervals begin and end anywhere, and with a gap between
// that no row sees; its pages are nowhere.
TEST(LatentRows, IntervalsOfAnyKind) {
  Intervals gap = {{3, 5}, {4, 40}, {40, 40}, {200, 260}, {201, 300}};
  for (const DType dtype : {DType::kBF16, DType::kFp8E4M3}) {
    LatentCase c({2, 3, 64, 16}, dtype,
                 {Last(70, 100, 9), gap, RowsOf(0, 90, 20, 0), {{5, 5}, {5, 6}}}, 4);
    c.Store();
    for (const int32_t split_keys : {64, kOneSplit}) {
      LatentRun run;
      run.split_keys = split_keys;
      Stream stream;
      EXPECT_TRUE(Near(c, c.Run(stream, run))) << DTypeName(dtype) << " " << split_keys;
    }
  }
}

// Against latents before they were rounded to e4m3 the answer is as good as e4m3 is.
TEST(LatentE4M3, AgainstUnroundedLatents) {
  LatentCase c({1, 16, 128, 64}, DType::kFp8E4M3, {Last(1, 150)}, 5);
  c.Store();
  Stream stream;
  const std::vector<float> got = c.Run(stream);
  EXPECT_TRUE(Close(got, c.Want(/*stored=*/false), 8e-2));
  EXPECT_FALSE(Close(got, c.Want(/*stored=*/false), 8e-3));
}

// Rope keys a hundred times larger than latents, and latents from 2^-60 to 2^60: a row has its
// scale, rope keys have none.
TEST(LatentE4M3, LargeRopeKeysAndAnyScale) {
  LatentCase c({2, 8, 128, 64}, DType::kFp8E4M3, {Last(1, 100), Last(1, 60), Last(1, 60)}, 6);
  for (int64_t t = 0; t < 100; ++t) {
    std::for_each_n(c.RopeKey(0, t), 2 * 64, [](float& x) { x *= 100; });
  }
  for (int64_t t = 0; t < 60; ++t) {
    std::for_each_n(c.Latent(1, t), 128, [](float& x) { x *= 0x1p-60f; });
    std::for_each_n(c.Latent(2, t), 128, [t](float& x) { x *= t % 2 == 0 ? 0x1p60f : 0.0f; });
  }
  c.Store();
  Stream stream;
  const std::vector<float> got = c.Run(stream);
  const std::vector<double> want = c.Want();
  for (int64_t s = 0; s < 3; ++s) {
    const std::vector<double> rows(want.begin() + s * 16 * 128, want.begin() + (s + 1) * 16 * 128);
    EXPECT_TRUE(Close(c.Slice(got, s), rows, Tolerance(DType::kFp8E4M3))) << s;
  }
}

// Scores far below any sentinel, and far above what 2^x can hold before the maximum is taken off.
TEST(LatentRows, LargeScores) {
  for (const float magnitude : {-1e5f, 1e5f}) {
    LatentCase c({1, 3, 64, 8}, DType::kBF16, {Last(2, 70)}, 7);
    std::fill(c.query().begin(), c.query().end(), 1.0f);
    std::fill(c.rope_query().begin(), c.rope_query().end(), magnitude);
    for (int64_t t = 0; t < 70; ++t) {
      std::fill_n(c.RopeKey(0, t), 8, t % 3 == 0 ? 1.0f : 2.0f);
    }
    c.Store();
    Stream stream;
    EXPECT_TRUE(Near(c, c.Run(stream))) << magnitude;
  }
}

}  // namespace
}  // namespace attnd::kernels::cuda
