// Grouped-query attention on the emulated device against the float64 reference. Queries, keys and
// values are rounded to the element before both, so what is left is the rounding of the weights to
// the element before the second product, and float32 sums. Measured: up to 2.4e-3 in bf16
// and 3.0e-4 in f16 (Frobenius, relative) for values in [-1, 1].
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "tests/kernels/cuda/gqa_case.h"

namespace attnd::kernels::cuda {
namespace {

double Tolerance(DType dtype) { return dtype == DType::kBF16 ? 5e-3 : 7e-4; }

::testing::AssertionResult Near(const GqaCase& c, const std::vector<float>& got) {
  return Close(got, c.Want(), Tolerance(c.dtype()));
}

// The last `rows` rows of histories of so many tokens.
std::vector<Intervals> Histories(const std::vector<int64_t>& lengths, int64_t rows,
                                 int64_t window = 0) {
  std::vector<Intervals> sequences;
  for (const int64_t length : lengths) {
    sequences.push_back(RowsOf(std::max<int64_t>(0, length - rows), length, 0, window));
  }
  return sequences;
}

struct Instance {
  GqaVariant variant;
  DType dtype;
  GqaShape shape;
};

// Of the twelve instantiations; widths that fill the template's and widths that do not.
std::vector<Instance> Instances() {
  std::vector<Instance> all;
  for (const GqaVariant variant : {GqaVariant::kDecode, GqaVariant::kPrefill}) {
    const int32_t group = variant == GqaVariant::kDecode ? 3 : 5;
    all.push_back({variant, DType::kBF16, {2, group, 64, 0, 64}});
    all.push_back({variant, DType::kF16, {1, group, 40, 16, 24}});
    all.push_back({variant, DType::kBF16, {1, group, 72, 0, 128}});
    all.push_back({variant, DType::kF16, {2, group, 128, 0, 128}});
    all.push_back({variant, DType::kBF16, {1, group, 128, 64, 128}});
    all.push_back({variant, DType::kF16, {1, group, 96, 40, 80}});
  }
  return all;
}

std::string NameOf(const ::testing::TestParamInfo<Instance>& info) {
  const GqaShape& shape = info.param.shape;
  return std::string(info.param.variant == GqaVariant::kDecode ? "Decode" : "Prefill") +
         (info.param.dtype == DType::kBF16 ? "Bf16_" : "F16_") + std::to_string(shape.key()) + "_" +
         std::to_string(shape.value);
}

class GqaTest : public ::testing::TestWithParam<Instance> {
 protected:
  GqaRun Forced() const {
    GqaRun run;
    run.variant = &GetParam().variant;
    return run;
  }
  // Rows of a sequence that make more than one tile in either variant.
  int64_t Rows() const { return GetParam().variant == GqaVariant::kDecode ? 7 : 15; }
};

TEST_P(GqaTest, LengthsAroundPagesWithoutBankConflicts) {
  const Instance& instance = GetParam();
  GqaCase c(instance.shape, instance.dtype,
            Histories({0, 1, 2, 63, 64, 65, 127, 128, 129, 257}, Rows()), 1);
  c.Store();
  Stream stream;
  stream.set_architecture(89);
  EXPECT_TRUE(Near(c, c.Run(stream, Forced())));
  EXPECT_EQ(stream.counts().bank_conflicts, 0);
  EXPECT_GT(stream.counts().load_matrices, 0);
}

TEST_P(GqaTest, WindowsAndPrefixesAroundPages) {
  const Instance& instance = GetParam();
  std::vector<Intervals> sequences;
  for (const int64_t window : {1, 2, 63, 64, 65, 100}) {
    sequences.push_back(RowsOf(130 - Rows(), 130, 0, window));
    sequences.push_back(RowsOf(192 - Rows(), 192, 0, window));
  }
  for (const int64_t prefix : {3, 64, 70}) {
    sequences.push_back(RowsOf(prefix - 2, prefix + Rows() - 2, prefix, 0));
    sequences.push_back(RowsOf(prefix - 2, prefix + Rows() - 2, prefix, 5));
  }
  GqaCase c(instance.shape, instance.dtype, sequences, 2);
  c.Store();
  Stream stream;
  EXPECT_TRUE(Near(c, c.Run(stream, Forced())));
}

// What no row sees is NaN in the pool and, where it fills a page, has no page.
TEST_P(GqaTest, EmptyRowsAndGapsBetweenRows) {
  const Instance& instance = GetParam();
  const std::vector<Intervals> sequences = {{{5, 5}, {5, 5}},
                                            {{0, 0}, {10, 40}, {40, 40}, {60, 70}},
                                            {{3, 9}, {20, 31}, {200, 203}, {203, 203}, {210, 300}},
                                            {},
                                            {{0, 10}, {500, 500}, {500, 512}},
                                            {{7, 7}, {100, 100}, {100, 101}}};
  GqaCase c(instance.shape, instance.dtype, sequences, 3);
  c.Store();
  GqaRun run = Forced();
  for (const int32_t split_keys : {kOneSplit, 64, 128}) {
    run.split_keys = split_keys;
    Stream stream;
    EXPECT_TRUE(Near(c, c.Run(stream, run))) << split_keys;
  }
}

TEST_P(GqaTest, SplitsOfEverySize) {
  const Instance& instance = GetParam();
  std::vector<Intervals> sequences = Histories({0, 1, 64, 65, 300, 520}, Rows());
  sequences.push_back(RowsOf(400 - Rows(), 400, 0, 70));  // splits that some of its rows do not see
  GqaCase c(instance.shape, instance.dtype, sequences, 4);
  c.Store();
  for (const int32_t split_keys : {64, 192, 256, 1024, 0}) {
    GqaRun run = Forced();
    run.split_keys = split_keys;
    run.grid = split_keys == 0 ? 40 : 3;
    Stream stream;
    EXPECT_TRUE(Near(c, c.Run(stream, run))) << split_keys;
  }
}

TEST_P(GqaTest, EveryOrderOfThreadsAndBlocksGivesTheSameBits) {
  const Instance& instance = GetParam();
  GqaCase c(instance.shape, instance.dtype, Histories({70, 330}, Rows()), 5);
  c.Store();
  GqaRun run = Forced();
  run.split_keys = 64;
  std::vector<float> first;
  for (int order = 0; order < 3; ++order) {
    Stream stream;
    if (order == 0) {
      stream.set_order(Order::kReverse);
    } else {
      stream.set_order(static_cast<uint64_t>(order));
    }
    const std::vector<float> got = c.Run(stream, run);
    if (order == 0) {
      EXPECT_TRUE(Near(c, got));
      first = got;
    }
    EXPECT_TRUE(SameBits(got, first)) << order;
  }
}

// A sequence in a batch and alone; a row among others and alone; on one block and on many.
TEST_P(GqaTest, BitsOfARowDependOnItAlone) {
  const Instance& instance = GetParam();
  const std::vector<Intervals> sequences = Histories({40, 203, 64, 330, 7}, Rows());
  GqaCase c(instance.shape, instance.dtype, sequences, 6);
  c.Store();
  GqaRun run = Forced();
  run.split_keys = 128;
  Stream stream;
  const std::vector<float> batch = c.Run(stream, run);
  run.grid = 11;
  for (const int32_t s : {1, 3}) {
    run.only = {s};
    EXPECT_TRUE(SameBits(c.Slice(c.Run(stream, run), s), c.Slice(batch, s))) << s;
  }
}

TEST_P(GqaTest, BitsOfARowDoNotDependOnTheRowsBesideIt) {
  const Instance& instance = GetParam();
  // Row 3 sees keys from 128 on, the first row from 125: alone it begins with another page.
  const Intervals rows = RowsOf(214, 221, 0, 90);
  GqaCase together(instance.shape, instance.dtype, {rows}, 7);
  GqaCase alone(instance.shape, instance.dtype, {rows, {rows[3]}}, 7);
  // The same data: row 3 is the second sequence's only one.
  const int64_t heads = instance.shape.heads();
  for (int64_t i = 0; i < heads * instance.shape.content; ++i) {
    alone.query()[static_cast<size_t>(7 * heads * instance.shape.content + i)] =
        together.query()[static_cast<size_t>(3 * heads * instance.shape.content + i)];
  }
  for (int64_t i = 0; i < heads * instance.shape.rope; ++i) {
    alone.rope_query()[static_cast<size_t>(7 * heads * instance.shape.rope + i)] =
        together.rope_query()[static_cast<size_t>(3 * heads * instance.shape.rope + i)];
  }
  for (int64_t token = rows[3].lo; token < rows[3].hi; ++token) {
    for (int32_t h = 0; h < instance.shape.heads_kv; ++h) {
      std::copy_n(together.Key(0, token, h), instance.shape.key(), alone.Key(1, token, h));
      std::copy_n(together.Value(0, token, h), instance.shape.value, alone.Value(1, token, h));
    }
  }
  together.Store();
  alone.Store();
  for (const int32_t split_keys : {kOneSplit, 64, 128}) {
    GqaRun run = Forced();
    run.split_keys = split_keys;
    Stream stream;
    const std::vector<float> all = together.Run(stream, run);
    const int64_t width = heads * instance.shape.value;
    EXPECT_TRUE(SameBits(alone.Slice(alone.Run(stream, run), 1),
                         {all.begin() + 3 * width, all.begin() + 4 * width}))
        << split_keys;
  }
}

INSTANTIATE_TEST_SUITE_P(All, GqaTest, ::testing::ValuesIn(Instances()), NameOf);

TEST(Gqa, EveryGroup) {
  for (const int32_t group : {1, 2, 3, 5, 7, 12, 16, 17, 128}) {
    const GqaShape shape = {2, group, 64, 0, 64};
    // One row of each sequence, and chunks: both variants, where the group leaves it open.
    std::vector<Intervals> sequences = Histories({1, 65, 100}, 1);
    sequences.push_back(RowsOf(60, 60 + 200 / group, 0, 0));
    GqaCase c(shape, DType::kBF16, sequences, static_cast<uint64_t>(group));
    c.Store();
    Stream stream;
    EXPECT_TRUE(Near(c, c.Run(stream))) << group;
  }
}

TEST(Gqa, ChoosesByTheRowsOfASequence) {
  GqaParams params;
  params.group = 4;
  EXPECT_EQ(ChooseGqaVariant(params, 4), GqaVariant::kDecode);
  EXPECT_EQ(ChooseGqaVariant(params, 5), GqaVariant::kPrefill);
  float carry = 0;
  params.carry = &carry;
  EXPECT_EQ(ChooseGqaVariant(params, 1), GqaVariant::kPrefill);
}

TEST(Gqa, RefusesWhatItCannotDo) {
  GqaParams good;
  good.heads_kv = 2;
  good.group = 4;
  good.content_width = 128;
  good.rope_width = 64;
  good.value_width = 128;
  good.keys = {0, 64 * 384, 384};
  good.values = {128 * 384, 64 * 256, 256};
  good.scale_log2 = 1;
  EXPECT_TRUE(GqaSupports(good, DType::kBF16));
  EXPECT_TRUE(GqaSupports(good, DType::kF16));
  EXPECT_FALSE(GqaSupports(good, DType::kF32));
  const auto refused = [&](auto bend) {
    GqaParams bad = good;
    bend(bad);
    return !GqaSupports(bad, DType::kBF16);
  };
  EXPECT_TRUE(refused([](GqaParams& p) { p.content_width = 132; }));
  EXPECT_TRUE(refused([](GqaParams& p) { p.content_width = 136; }));
  EXPECT_TRUE(refused([](GqaParams& p) { p.value_width = 136; }));
  EXPECT_TRUE(refused([](GqaParams& p) { p.value_width = 4; }));
  EXPECT_TRUE(refused([](GqaParams& p) { p.rope_width = 4; }));
  EXPECT_TRUE(refused([](GqaParams& p) { p.group = 129; }));
  EXPECT_TRUE(refused([](GqaParams& p) { p.keys.stride = 392; }));
  EXPECT_TRUE(refused([](GqaParams& p) { p.values.offset += 8; }));
  EXPECT_TRUE(refused([](GqaParams& p) { p.values.head_step += 8; }));
  EXPECT_TRUE(refused([](GqaParams& p) { p.scale_log2 = 0; }));
}

// State that goes from launch to launch is the state that one launch has.
TEST(Gqa, CarryingOverBlocksIsOneLaunch) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const GqaShape shape = {2, 3, 32, 16, 40};
    std::vector<Intervals> sequences = Histories({1, 64, 65, 200, 330}, 24);
    sequences.push_back({{5, 5}, {5, 8}, {130, 140}});
    sequences.push_back(RowsOf(290, 300, 0, 20));  // nothing of it in the first blocks
    GqaCase c(shape, dtype, sequences, 8);
    c.Store();
    GqaRun run;
    const GqaVariant prefill = GqaVariant::kPrefill;
    run.variant = &prefill;
    Stream stream;
    const std::vector<float> whole = c.Run(stream, run);
    EXPECT_TRUE(Near(c, whole));
    for (const std::vector<int64_t>& blocks : std::vector<std::vector<int64_t>>{
             {1024}, {64, 128, 192, 256, 320, 384}, {128, 330}, {256, 512}}) {
      run.carry = blocks;
      EXPECT_TRUE(SameBits(c.Run(stream, run), whole)) << blocks.size();
    }
  }
}

// Logits of 1e5 either way: a finite stand-in for -inf would swallow them.
TEST(Gqa, HugeLogits) {
  for (const float sign : {1.0f, -1.0f}) {
    const GqaShape shape = {1, 2, 64, 0, 64};
    std::vector<Intervals> sequences = Histories({130}, 3);
    sequences.push_back({{100, 130}, {120, 140}});  // the first row's tile is masked for the second
    GqaCase c(shape, DType::kBF16, sequences, 9);
    for (float& q : c.query()) {
      q = 1000.0f + 10 * q;
    }
    for (int64_t s = 0; s < 2; ++s) {
      for (int64_t token = s == 0 ? 0 : 100; token < (s == 0 ? 130 : 140); ++token) {
        for (int i = 0; i < 64; ++i) {
          float& key = c.Key(s, token, 0)[i];
          key = sign * (12.5f + key / 8);
        }
      }
    }
    c.Store();
    for (const GqaVariant& variant : {GqaVariant::kDecode, GqaVariant::kPrefill}) {
      for (const int32_t split_keys : {kOneSplit, 64}) {
        GqaRun run;
        run.variant = &variant;
        run.split_keys = split_keys;
        Stream stream;
        EXPECT_TRUE(Close(c.Run(stream, run), c.Want(), 2e-2)) << sign << " " << split_keys;
      }
    }
  }
}

// Logits of 1e9 to 1e29, whose rounding is more than 2^x can hold, beside a row of ordinary ones.
TEST(Gqa, LogitsLargerThanTheirRounding) {
  for (const float magnitude : {3e4f, 1e6f, 1e10f, 1e14f}) {
    const GqaShape shape = {1, 2, 64, 0, 64};
    GqaCase c(shape, DType::kBF16, Histories({130}, 3), 9);
    for (int i = 0; i < 6 * 64; ++i) {
      float& q = c.query()[static_cast<size_t>(i)];
      q = i / 64 == 3 ? q / magnitude : magnitude * (1 + q / 16);
    }
    for (int64_t token = 0; token < 130; ++token) {
      std::for_each_n(c.Key(0, token, 0), 64, [&](float& k) { k = magnitude * (1 + k / 16); });
    }
    c.Store();
    const std::vector<double> want = c.Want();
    for (const GqaVariant& variant : {GqaVariant::kDecode, GqaVariant::kPrefill}) {
      for (const int32_t split_keys : {kOneSplit, 64}) {
        GqaRun run;
        run.variant = &variant;
        run.split_keys = split_keys;
        Stream stream;
        EXPECT_TRUE(Close(c.Run(stream, run), want, 5e-3)) << magnitude << " " << split_keys;
      }
    }
  }
}

// Exactly `window` keys count: with all weight on one key, the row shows whether it sees it.
TEST(Gqa, TheWindowBeginsWhereItShould) {
  const int64_t window = 70;
  for (const GqaVariant& variant : {GqaVariant::kDecode, GqaVariant::kPrefill}) {
    for (const int64_t position : {70, 133, 134, 200}) {
      for (const bool inside : {false, true}) {
        const GqaShape shape = {1, 1, 16, 0, 8};
        const int64_t key = position - window + (inside ? 1 : 0);
        GqaCase c(shape, DType::kBF16, {RowsOf(position - 1, position + 1, 0, window)}, 10);
        for (float& q : c.query()) {
          q = 1;
        }
        std::fill_n(c.Key(0, key, 0), 16, 100.0f);
        std::fill_n(c.Value(0, key, 0), 8, 100.0f);
        c.Store();
        GqaRun run;
        run.variant = &variant;
        Stream stream;
        const std::vector<float> got = c.Run(stream, run);
        EXPECT_EQ(got[8] > 99, inside) << position;  // the second row is at `position`
        EXPECT_GT(got[0], 99) << position;           // the first sees a key more
        EXPECT_TRUE(Near(c, got));
      }
    }
  }
}

}  // namespace
}  // namespace attnd::kernels::cuda
