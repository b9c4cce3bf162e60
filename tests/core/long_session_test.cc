// A session of 65,536 tokens through a local layer of the medium size: positions, windows and
// dropped pages far from zero. An executable of its own, for it takes seconds.
#include <gtest/gtest.h>

#include <cmath>

#include "core/rope.h"
#include "core/weights.h"
#include "kernels/convert.h"
#include "kernels/reference/layers.h"
#include "tests/support/test_engine.h"

namespace attnd {
namespace {

constexpr int64_t kTokens = 65536;
constexpr int64_t kBlock = 2048;  // rows of one call, and of one seed
constexpr int64_t kWanted = 8;    // rows at the end that are compared

ModelConfig MediumLocalLayer() {
  ModelConfig config = *LoadModelConfig("builtin:apex1-medium");
  config.n_layers = 1;
  return config;
}

std::vector<float> Block(int64_t index, int64_t d_model) {
  return RandomRows(static_cast<uint64_t>(index) + 1, kBlock, d_model);
}

kernels::ReferenceLocalLayer ReferenceOf(const LayerPlan& plan) {
  const std::unique_ptr<WeightSource> weights = *OpenWeights("random:1", plan);
  std::vector<kernels::ReferenceMatrix> w;
  for (const TensorSpec& spec : LayerTensors(plan, 0)) {
    const TensorView view = *weights->Tensor(spec);
    std::vector<float> values(static_cast<size_t>(spec.out * spec.in));
    kernels::ToFloat(view.dtype, view.data, spec.out * spec.in, values.data());
    w.emplace_back(values.begin(), values.end());
  }
  return {plan.d_model,
          plan.local.shape,
          plan.local.window,
          plan.local.scale,
          RopeFrequencies(plan.local.rope),
          w[0],
          w[1],
          w[2],
          w[3]};
}

// Scores depend on differences of positions alone, so the last rows are those of a session that
// begins a window before them.
std::vector<double> WantedRows(const LayerPlan& plan) {
  const int64_t blocks = kTokens / kBlock;
  std::vector<float> tail = Block(blocks - 2, plan.d_model);
  const std::vector<float> last = Block(blocks - 1, plan.d_model);
  tail.insert(tail.end(), last.begin(), last.end());
  const int64_t rows = plan.local.window + kWanted;
  const std::vector<double> x(tail.end() - rows * plan.d_model, tail.end());
  std::vector<int64_t> wanted;
  for (int64_t row = rows - kWanted; row < rows; ++row) {
    wanted.push_back(row);
  }
  return kernels::ReferenceForward(ReferenceOf(plan), x, rows, 0, wanted);
}

TEST(LongSessionTest, TheLastOf65536TokensIsExact) {
  TestEngineOptions options;
  options.threads = 2;
  options.engine.kv_cache_bytes = int64_t{64} << 20;
  TestEngine engine(MediumLocalLayer(), "random:1", options);
  const LayerPlan& plan = engine.engine().plan();
  const std::string id = engine.Create();
  for (int64_t at = 0; at < kTokens - kBlock; at += kBlock) {
    auto step = engine.Prefill(id, 0, at, Block(at / kBlock, plan.d_model));
    step->output_rows = OutputRows::kNone;
    step = engine.Run(std::move(step));
    ASSERT_TRUE(step->Outcome().ok()) << step->Outcome();
  }
  // Of the last block all but the last token are one prefill; the last is decoded.
  std::vector<float> rows = Block(kTokens / kBlock - 1, plan.d_model);
  const std::vector<float> token(rows.end() - plan.d_model, rows.end());
  rows.resize(rows.size() - token.size());
  auto prefill = engine.Run(engine.Prefill(id, 0, kTokens - kBlock, rows));
  ASSERT_TRUE(prefill->Outcome().ok()) << prefill->Outcome();
  auto decode = engine.Run(engine.Decode({id}, 0, {kTokens - 1}, token));
  ASSERT_TRUE(decode->Outcome().ok()) << decode->Outcome();
  std::vector<float> got(prefill->output.end() - (kWanted - 1) * plan.d_model,
                         prefill->output.end());
  got.insert(got.end(), decode->output.begin(), decode->output.end());

  const std::vector<double> want = WantedRows(plan);
  ASSERT_EQ(got.size(), want.size());
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  const double relative = std::sqrt(error / norm);
  std::printf("65536 tokens, medium, local: error %.1e of 1e-05\n", relative);
  EXPECT_LE(relative, 1e-5);
}

}  // namespace
}  // namespace attnd
