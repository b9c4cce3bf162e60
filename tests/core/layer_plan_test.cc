#include "core/layer_plan.h"

#include <gtest/gtest.h>

#include <cmath>

namespace attnd {
namespace {

std::string Letters(const LayerPlan& plan) {
  std::string letters;
  for (const LayerKind kind : plan.layers) {
    letters += kind == LayerKind::kLocal ? 'L' : 'G';
  }
  return letters;
}

TEST(LayerPlan, EveryFthLayerIsGlobal) {
  ModelConfig config = LoadModelConfig("builtin:apex1-small").value();
  EXPECT_EQ(Letters(MakeLayerPlan(config)), "LLLLLGLLLLLG");
  config.global_layer_freq = 1;
  EXPECT_EQ(Letters(MakeLayerPlan(config)), "GGGGGGGGGGGG");
  config.global_layer_freq = 13;
  EXPECT_EQ(Letters(MakeLayerPlan(config)), "LLLLLLLLLLLL");
  config.global_layer_freq = 5;
  const LayerPlan plan = MakeLayerPlan(config);
  EXPECT_EQ(Letters(plan), "LLLLGLLLLGLL");
  EXPECT_EQ(plan.CountOf(LayerKind::kGlobal), 2);
  EXPECT_EQ(plan.CountOf(LayerKind::kLocal), 10);
  EXPECT_EQ(plan.num_layers(), 12);
}

TEST(LayerPlan, ShapesAndScales) {
  const LayerPlan plan = MakeLayerPlan(LoadModelConfig("builtin:apex1-large").value());
  EXPECT_EQ(plan.d_model, 7168);
  EXPECT_EQ(plan.max_seq_len, 131072);
  EXPECT_EQ(plan.local.window, 8192);
  EXPECT_EQ(plan.local.shape.group(), 16);
  EXPECT_EQ(plan.TokenBytes(LayerKind::kLocal, DType::kF32), 4 * 2048);
  EXPECT_EQ(plan.TokenBytes(LayerKind::kGlobal, DType::kBF16), 2 * 1024);
  // 8 KV heads' keys and values of 128 with a scale each; latents of 512, a scale, bf16 rope keys.
  EXPECT_EQ(plan.TokenBytes(LayerKind::kLocal, DType::kInt8), 2 * 8 * (128 + 4));
  EXPECT_EQ(plan.TokenBytes(LayerKind::kGlobal, DType::kInt8), 512 + 4 + 2 * 8 * 64);
  EXPECT_EQ(plan.global.d_query_latent, 768);
  EXPECT_EQ(plan.local.rope.width, 128);
  EXPECT_EQ(plan.global.rope.width, 64);
  EXPECT_EQ(plan.global.rope.scaling, 8);
  EXPECT_DOUBLE_EQ(plan.local.scale, 1 / std::sqrt(128.0));
  EXPECT_DOUBLE_EQ(plan.global.scale, 1 / std::sqrt(192.0));
}

TEST(LayerPlan, TheTemperatureIsAppliedOnlyWhenAskedFor) {
  ModelConfig config = LoadModelConfig("builtin:apex1-large").value();
  config.rope_attn_factor = true;
  const LayerPlan plan = MakeLayerPlan(config);
  const double factor = 0.1 * std::log(8.0) + 1;
  EXPECT_DOUBLE_EQ(plan.local.scale, factor / std::sqrt(128.0));
  EXPECT_DOUBLE_EQ(plan.global.scale, factor / std::sqrt(192.0));
}

TEST(LayerPlan, TensorsOfEachKind) {
  const LayerPlan plan = MakeLayerPlan(LoadModelConfig("builtin:apex1-large").value());
  const auto text = [&](int64_t layer) {
    std::string all;
    for (const TensorSpec& t : LayerTensors(plan, layer)) {
      all += t.name + " " + std::to_string(t.out) + "x" + std::to_string(t.in) + "\n";
    }
    return all;
  };
  EXPECT_EQ(text(70),
            "blocks.70.attn.W_Q.weight 16384x7168\n"
            "blocks.70.attn.W_K.weight 1024x7168\n"
            "blocks.70.attn.W_V.weight 1024x7168\n"
            "blocks.70.attn.W_O.weight 7168x16384\n");
  EXPECT_EQ(text(5),
            "blocks.5.attn.W_DKV.weight 512x7168\n"
            "blocks.5.attn.W_UK.weight 1024x512\n"
            "blocks.5.attn.W_UV.weight 1024x512\n"
            "blocks.5.attn.W_DQ.weight 768x7168\n"
            "blocks.5.attn.W_UQ.weight 16384x768\n"
            "blocks.5.attn.W_QR.weight 8192x7168\n"
            "blocks.5.attn.W_KR.weight 512x7168\n"
            "blocks.5.attn.W_O.weight 7168x16384\n");
}

}  // namespace
}  // namespace attnd
