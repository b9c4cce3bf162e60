// The published figures of the large model.
#include "client/attnctl/plan_figures.h"

#include <gtest/gtest.h>

namespace attnd::attnctl {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

TEST(PlanFigures, LargeAtItsLongestContext) {
  const absl::StatusOr<ModelConfig> config = LoadModelConfig("builtin:apex1-large");
  ASSERT_TRUE(config.ok()) << config.status();
  const PlanFigures plan = ComputePlan(*config, 131072, 1, DType::kBF16);
  EXPECT_EQ(plan.local_layers, 60);
  EXPECT_EQ(plan.global_layers, 12);
  EXPECT_EQ(plan.mha.cache_elements, 32768);
  EXPECT_EQ(plan.gqa.cache_elements, 2048);
  EXPECT_EQ(plan.mla.cache_elements, 1024);
  EXPECT_EQ(plan.mha.layer_bytes, 8 * kGiB);
  EXPECT_EQ(plan.window_keys, 8192);  // 16 times fewer than the context
  // 60 layers of 8,192 tokens of 4 KiB, 12 of 131,072 tokens of 2 KiB.
  EXPECT_EQ(plan.local_bytes, 60 * 8192.0 * 4096);
  EXPECT_EQ(plan.global_bytes, 12 * 131072.0 * 2048);
  EXPECT_EQ(plan.mha_session_bytes, 72 * 8 * kGiB);
  EXPECT_EQ(plan.local_attention, 4.0 * 128 * 128 * 8192);
}

TEST(PlanFigures, FourByteElementsDoubleTheBytesAndNothingElse) {
  const absl::StatusOr<ModelConfig> config = LoadModelConfig("builtin:apex1-small");
  ASSERT_TRUE(config.ok()) << config.status();
  const PlanFigures half = ComputePlan(*config, 100, 1, DType::kF16);
  const PlanFigures full = ComputePlan(*config, 100, 1, DType::kF32);
  EXPECT_EQ(full.session_bytes(), 2 * half.session_bytes());
  EXPECT_EQ(full.mla.cache_elements, half.mla.cache_elements);
  EXPECT_EQ(full.token_flop, half.token_flop);
  EXPECT_EQ(full.window_keys, 100);  // a context below the window
}

TEST(PlanFigures, Int8IsTheServersBytes) {
  const absl::StatusOr<ModelConfig> config = LoadModelConfig("builtin:apex1-large");
  ASSERT_TRUE(config.ok()) << config.status();
  const PlanFigures plan = ComputePlan(*config, 131072, 1, DType::kInt8);
  EXPECT_EQ(plan.gqa.token_bytes, 2112);
  EXPECT_EQ(plan.mla.token_bytes, 1540);
  EXPECT_EQ(plan.token_bytes, 60 * 2112 + 12 * 1540);
}

}  // namespace
}  // namespace attnd::attnctl
