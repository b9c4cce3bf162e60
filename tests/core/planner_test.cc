#include "core/planner.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/visible.h"

namespace attnd {
namespace {

ModelConfig Large() { return LoadModelConfig("builtin:apex1-large").value(); }

TEST(Planner, CacheElementsOfLarge) {
  ModelConfig config = Large();
  EXPECT_EQ(MhaCacheElements(config), 32768);
  EXPECT_EQ(GqaCacheElements(config), 2048);
  EXPECT_EQ(MlaCacheElements(config), 1024);
  EXPECT_DOUBLE_EQ(100.0 * GqaCacheElements(config) / MhaCacheElements(config), 6.25);
  EXPECT_DOUBLE_EQ(100.0 * MlaCacheElements(config) / MhaCacheElements(config), 3.125);
  config.n_heads_kv = 1;
  EXPECT_DOUBLE_EQ(100.0 * GqaCacheElements(config) / MhaCacheElements(config), 0.78125);
}

TEST(Planner, ParametersAreTheSizesOfTheTensors) {
  for (const char* name : {"builtin:apex1-tiny", "builtin:apex1-small", "builtin:apex1-medium",
                           "builtin:apex1-large"}) {
    const ModelConfig config = LoadModelConfig(name).value();
    const LayerPlan plan = MakeLayerPlan(config);
    const auto count = [&](int64_t layer) {
      int64_t sum = 0;
      for (const TensorSpec& tensor : LayerTensors(plan, layer)) {
        sum += tensor.out * tensor.in;
      }
      return sum;
    };
    EXPECT_EQ(GqaParameters(config), count(0)) << name;
    EXPECT_EQ(MlaParameters(config), count(5)) << name;
  }
  const ModelConfig small = LoadModelConfig("builtin:apex1-small").value();
  EXPECT_EQ(MhaParameters(small), 4 * 512 * 512);  // 4 d^2 where d = H_q d_h
  EXPECT_EQ(MhaParameters(Large()), int64_t{4} * 7168 * 128 * 128);
}

TEST(Planner, FlopOfADecodedToken) {
  const ModelConfig c = Large();
  const double local = 2.0 * GqaParameters(c) + 4.0 * 128 * 128 * 8192;
  EXPECT_DOUBLE_EQ(LocalDecodeFlop(c, 8192), local);
  EXPECT_DOUBLE_EQ(LocalDecodeFlop(c, 131072), local);  // flat beyond the window
  EXPECT_DOUBLE_EQ(LocalDecodeFlop(c, 100), 2.0 * GqaParameters(c) + 4.0 * 128 * 128 * 100);
  EXPECT_DOUBLE_EQ(
      GlobalDecodeFlop(c, 1000),
      2.0 * MlaParameters(c) + 2.0 * 128 * 1000 * (2 * 512 + 64) + 4.0 * 128 * 128 * 512);
}

// The pairs of a chunk, counted row by row.
TEST(Planner, ChunkFlopCountsTheVisiblePairs) {
  ModelConfig config = LoadModelConfig("builtin:apex1-tiny").value();
  config.local_window = 7;
  const LayerPlan plan = MakeLayerPlan(config);
  for (const int64_t position : {0, 1, 5, 6, 7, 8, 50}) {
    for (const int64_t rows : {1, 2, 6, 7, 8, 20}) {
      double pairs[2] = {0, 0};
      for (int64_t row = position; row < position + rows; ++row) {
        for (const LayerKind kind : {LayerKind::kLocal, LayerKind::kGlobal}) {
          const Interval seen = Visible(kind, row, 0, 7);
          pairs[static_cast<int>(kind)] += static_cast<double>(seen.hi - seen.lo);
        }
      }
      const double n = static_cast<double>(rows);
      const double keys = static_cast<double>(position + rows);
      EXPECT_DOUBLE_EQ(ChunkFlop(plan, LayerKind::kLocal, position, rows),
                       2 * n * GqaParameters(config) + 4 * 4 * 16 * pairs[0]);
      const double expansion = 2 * 16 * 2 * 16;  // W_UK and W_UV
      const double absorbed = 2 * 4 * pairs[1] * (2 * 16 + 8) + n * 4 * 4 * 16 * 16;
      const double expanded = keys * 4 * 2 * 16 * 16 + pairs[1] * 4 * (2 * (16 + 8) + 2 * 16);
      EXPECT_DOUBLE_EQ(ChunkFlop(plan, LayerKind::kGlobal, position, rows),
                       2 * n * (static_cast<double>(MlaParameters(config)) - expansion) +
                           std::min(absorbed, expanded));
    }
  }
}

TEST(Planner, OneRowIsAbsorbedAndManyAreExpanded) {
  const LayerPlan plan = MakeLayerPlan(Large());
  const kernels::GlobalShape& shape = plan.global.shape;
  // Mapping a query costs 33.6 MFLOP, expanding a key 1.08 x 2.18 MFLOP against 0.28 of attending
  // to its latent: a history of 16 keys is expanded even for one row.
  EXPECT_FALSE(PreferAbsorbed(shape, 1, 1));
  EXPECT_FALSE(PreferAbsorbed(shape, 1, 16));
  EXPECT_TRUE(PreferAbsorbed(shape, 1, 17));
  EXPECT_TRUE(PreferAbsorbed(shape, 1, 131072));
  EXPECT_FALSE(PreferAbsorbed(shape, 512, 512));
  EXPECT_FALSE(PreferAbsorbed(shape, 512, 131072));
  EXPECT_TRUE(PreferAbsorbed(shape, 11, 4096));
  EXPECT_FALSE(PreferAbsorbed(shape, 12, 4096));
  // One change of form as rows grow.
  bool absorbed = true;
  for (int64_t rows = 1; rows <= 512; ++rows) {
    const bool now = PreferAbsorbed(shape, rows, 4096);
    EXPECT_TRUE(absorbed || !now) << rows;
    absorbed = now;
  }
}

// With a narrow latent the absorbed form wins at any size: 2 d_kv + d_r < 2 d_h + d_r.
TEST(Planner, ANarrowLatentIsAlwaysAbsorbed) {
  kernels::GlobalShape shape;
  shape.heads_q = 8;
  shape.heads_kv = 8;
  shape.d_head = 64;
  shape.d_rope = 32;
  shape.d_latent = 32;
  EXPECT_TRUE(PreferAbsorbed(shape, 512, 512));
  EXPECT_TRUE(PreferAbsorbed(shape, 4096, 100000));
}

}  // namespace
}  // namespace attnd
