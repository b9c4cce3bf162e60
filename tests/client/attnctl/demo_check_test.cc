// The demo's verdict: what passes, and that NaN, a missing row and one wild element do not.
#include "client/attnctl/demo_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace attnd::attnctl {
namespace {

const std::vector<double> kReference(1000, 1.0);

std::vector<float> Answer() { return std::vector<float>(1000, 1.0F); }

TEST(Compare, RightAnswersPass) {
  const LayerCheck check = Compare(Answer(), kReference, 100, 1e-5);
  EXPECT_TRUE(check.passed);
  EXPECT_EQ(check.rows, 10);
  EXPECT_EQ(check.error, 0);
}

TEST(Compare, AnErrorAboveTheToleranceFails) {
  std::vector<float> answer = Answer();
  for (float& value : answer) {
    value = 1.001F;
  }
  EXPECT_FALSE(Compare(answer, kReference, 100, 1e-5).passed);
  EXPECT_TRUE(Compare(answer, kReference, 100, 1e-2).passed);
}

TEST(Compare, NeitherNanNorAMissingRowPasses) {
  std::vector<float> answer = Answer();
  answer[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(Compare(answer, kReference, 100, 1e-2).passed);
  EXPECT_FALSE(Compare(std::vector<float>(900, 1.0F), kReference, 100, 1e-2).passed);
}

v1::ModelInfo Tiny() {
  v1::ModelInfo model;
  model.set_name("tiny");
  model.set_d_model(64);
  model.set_num_heads_q(4);
  model.set_num_heads_kv(2);
  model.set_d_head(16);
  model.set_d_head_rope(8);
  model.set_d_kv_compressed(16);
  model.set_d_q_compressed(24);
  model.set_local_window(64);
  model.set_max_seq_len(256);
  model.set_rope_base(10000);
  model.set_rope_scaling(1);
  for (int layer = 0; layer < 6; ++layer) {
    model.add_layers(layer == 5 ? v1::LAYER_KIND_GLOBAL_MLA : v1::LAYER_KIND_LOCAL_GQA);
  }
  return model;
}

TEST(ConfigOf, FindsTheFrequencyOfGlobalLayers) {
  v1::ModelInfo model = Tiny();
  absl::StatusOr<ModelConfig> config = ConfigOf(model);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->global_layer_freq, 6);
  model.set_layers(0, v1::LAYER_KIND_GLOBAL_MLA);  // the first and the sixth: no frequency
  EXPECT_FALSE(ConfigOf(model).ok());
}

TEST(ShapeFor, FitsTheModelAndSamplesBothPhases) {
  const DemoShape shape = ShapeFor(Tiny());
  EXPECT_EQ(shape.prefill_rows, 156);
  EXPECT_EQ(shape.decode_steps, 100);
  EXPECT_EQ(shape.sampled.front(), 0);
  EXPECT_EQ(shape.sampled.back(), 255);
}

}  // namespace
}  // namespace attnd::attnctl
