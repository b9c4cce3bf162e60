// The golden cases through the engine, in process: every model, every storage type, many splits.
#include <gtest/gtest.h>

#include <cstdio>
#include <random>

#include "core/model_config.h"
#include "tests/support/golden.h"
#include "tests/support/splits.h"
#include "tests/support/test_engine.h"

namespace attnd {
namespace {

// Runs one split and returns the answers [len, d_model] in the order of their rows.
std::vector<float> Answer(TestEngine* engine, const GoldenCase& c, const Split& split) {
  const std::string id = engine->Create(c.prefix);
  std::vector<float> out(c.x.size());
  for (const Call& call : split.calls) {
    const auto begin = c.x.begin() + call.position * c.d_model;
    std::vector<float> rows(begin, begin + call.rows * c.d_model);
    std::unique_ptr<Step> step =
        call.decode ? engine->Decode({id}, c.layer, {call.position}, std::move(rows), call.rows)
                    : engine->Prefill(id, c.layer, call.position, std::move(rows));
    step = engine->Run(std::move(step));
    EXPECT_TRUE(step->Outcome().ok()) << step->Outcome();
    const int64_t at = call.decode ? call.position : step->output_position;
    std::copy(step->output.begin(), step->output.end(), out.begin() + at * c.d_model);
  }
  EXPECT_TRUE(engine->engine().sessions().Close("", id).ok());
  return out;
}

class ForwardPassTest : public testing::TestWithParam<std::tuple<std::string, DType>> {};

TEST_P(ForwardPassTest, EverySplitGivesTheGoldenAnswers) {
  const auto& [model, dtype] = GetParam();
  const double tolerance = dtype == DType::kF32 ? kGoldenF32 : kGoldenHalfStorage;
  const std::string dir = GoldenDir() + "/" + model;
  const absl::StatusOr<ModelConfig> config = LoadModelConfig(dir + "/model.yaml");
  ASSERT_TRUE(config.ok()) << config.status();
  TestEngineOptions options;
  options.threads = 2;
  options.engine.cache_dtype = dtype;
  options.engine.weight_dtype = dtype;
  options.engine.prefill_chunk_rows = 200;  // so that long prefills run in chunks
  TestEngine engine(*config, dir + "/model.safetensors", options);
  const absl::StatusOr<std::vector<GoldenCase>> cases = LoadGolden(dir);
  ASSERT_TRUE(cases.ok()) << cases.status();

  const auto seed = static_cast<uint32_t>(std::random_device{}());
  std::mt19937 random(seed);
  double worst = 0;
  int runs = 0;
  for (const GoldenCase& c : *cases) {
    for (const Split& split : MakeSplits(c.len, c.prefix, config->local_window, &random)) {
      SCOPED_TRACE("layer " + std::to_string(c.layer) + ", " + std::to_string(c.len) +
                   " rows, prefix " + std::to_string(c.prefix) + ", split " + split.name +
                   ", seed " + std::to_string(seed));
      const Verdict verdict = Compare(Answer(&engine, c, split), c.y, tolerance);
      EXPECT_TRUE(verdict.passed) << verdict.text;
      worst = std::max(worst, verdict.relative);
      ++runs;
    }
  }
  std::printf("golden, in process: %-12s %-4s %3d runs, worst error %.1e of %.0e\n", model.c_str(),
              DTypeName(dtype), runs, worst, tolerance);
  engine.engine().pool().Audit();
}

INSTANTIATE_TEST_SUITE_P(Models, ForwardPassTest,
                         testing::Combine(testing::ValuesIn(GoldenModels()),
                                          testing::Values(DType::kF32, DType::kBF16, DType::kF16)),
                         [](const auto& instance) {
                           return std::get<0>(instance.param) + "_" +
                                  DTypeName(std::get<1>(instance.param));
                         });

}  // namespace
}  // namespace attnd
