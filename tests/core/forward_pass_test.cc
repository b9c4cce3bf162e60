// The golden cases through the engine, in process: every model and storage type, on every
// instruction set that this machine has; every split of them on the best one.
#include <gtest/gtest.h>

#include <cstdio>
#include <random>

#include "absl/strings/str_format.h"
#include "core/model_config.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/core/answer.h"
#include "tests/support/golden.h"
#include "tests/support/splits.h"
#include "tests/support/test_engine.h"

namespace attnd {
namespace {

class ForwardPassTest : public testing::TestWithParam<std::tuple<std::string, DType>> {};

// The worst relative error over all cases of a model and many splits of each, or one at random.
double WorstError(TestEngine* engine, const std::vector<GoldenCase>& cases, int64_t window,
                  double tolerance, bool all_splits) {
  const auto seed = static_cast<uint32_t>(std::random_device{}());
  std::mt19937 random(seed);
  double worst = 0;
  for (const GoldenCase& c : cases) {
    std::vector<Split> splits = MakeSplits(c.len, c.prefix, window, &random);
    if (!all_splits) {
      splits = {splits[random() % splits.size()]};
    }
    for (const Split& split : splits) {
      SCOPED_TRACE("layer " + std::to_string(c.layer) + ", " + std::to_string(c.len) +
                   " rows, prefix " + std::to_string(c.prefix) + ", split " + split.name +
                   ", seed " + std::to_string(seed));
      const Verdict verdict = Compare(Answer(engine, c, split), c.y, tolerance);
      EXPECT_TRUE(verdict.passed) << verdict.text;
      worst = std::max(worst, verdict.relative);
    }
  }
  return worst;
}

// Under the thread sanitizer the best alone: the sets differ in nothing that it sees, and plain
// code takes a minute a model there.
std::vector<std::string> IsasToTry() {
  std::vector<std::string> isas = kernels::CpuIsas();
#if defined(__SANITIZE_THREAD__)
  isas.resize(1);
#endif
  return isas;
}

TEST_P(ForwardPassTest, EverySplitGivesTheGoldenAnswers) {
  const auto& [model, dtype] = GetParam();
  const bool int8 = dtype == DType::kInt8;
  const double tolerance = int8                   ? kGoldenInt8Cache
                           : dtype == DType::kF32 ? kGoldenF32
                                                  : kGoldenHalfStorage;
  const std::string dir = GoldenDir() + "/" + model;
  const absl::StatusOr<ModelConfig> config = LoadModelConfig(dir + "/model.yaml");
  ASSERT_TRUE(config.ok()) << config.status();
  const absl::StatusOr<std::vector<GoldenCase>> cases = LoadGolden(dir);
  ASSERT_TRUE(cases.ok()) << cases.status();
  std::string errors;
  for (const std::string& isa : IsasToTry()) {
    SCOPED_TRACE(isa);
    TestEngineOptions options;
    options.isa = isa;
    options.threads = 2;
    options.engine.cache_dtype = dtype;
    options.engine.weight_dtype = int8 ? DType::kF32 : dtype;
    options.engine.prefill_chunk_rows = 200;  // so that long prefills run in chunks
    TestEngine engine(*config, dir + "/model.safetensors", options);
    // The best set is the one that serves. Every split on the others, the plain fallback above all,
    // would take a minute of CPU, and more under a sanitizer.
    const bool all_splits = isa == kernels::CpuIsas().front();
    const double worst = WorstError(&engine, *cases, config->local_window, tolerance, all_splits);
    errors += absl::StrFormat(", %s %.1e", isa, worst);
    engine.engine().pool().Audit();
  }
  std::printf("golden, in process: %-12s %-4s worst error of %.0e%s\n", model.c_str(),
              DTypeName(dtype), tolerance, errors.c_str());
}

INSTANTIATE_TEST_SUITE_P(Models, ForwardPassTest,
                         testing::Combine(testing::ValuesIn(GoldenModels()),
                                          testing::Values(DType::kF32, DType::kBF16, DType::kF16,
                                                          DType::kInt8)),
                         [](const auto& instance) {
                           return std::get<0>(instance.param) + "_" +
                                  DTypeName(std::get<1>(instance.param));
                         });

}  // namespace
}  // namespace attnd
