// The engine on the CUDA backend, on the emulated device: the golden cases of every model and
// storage type, and decode steps as graphs.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <random>
#include <tuple>

#include "absl/strings/str_format.h"
#include "core/model_config.h"
#include "cuda_emulation/emulated_runtime.h"
#include "kernels/check.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/core/answer.h"

namespace attnd {
namespace {

using kernels::cuda::CudaOptions;
using kernels::cuda::EmulatedRuntime;
using kernels::cuda::MakeEmulatedRuntime;

// `runtime` is told when the backend is made.
TestEngineOptions Emulated(DType cache, DType weights, const CudaOptions& cuda,
                           EmulatedRuntime** runtime = nullptr) {
  TestEngineOptions options;
  options.engine.cache_dtype = cache;
  options.engine.weight_dtype = weights;
  options.engine.kv_cache_bytes = int64_t{16} << 20;
  options.engine.max_batch_rows = 256;
  options.engine.prefill_chunk_rows = 200;  // so that long prefills run in chunks
  options.backend = [cuda, runtime] {
    auto device = MakeEmulatedRuntime();
    if (runtime != nullptr) {
      *runtime = device.get();
    }
    auto backend = kernels::cuda::MakeCudaBackend(std::move(device), cuda);
    Check(backend.ok(), "a test's backend can be made");
    return *std::move(backend);
  };
  return options;
}

CudaOptions SmallBlocks() {
  CudaOptions options;
  options.expand_keys = 128;
  options.partial_bytes = int64_t{1} << 20;
  return options;
}

struct Storage {
  DType cache;
  DType weights;
  double tolerance;
};

class CudaForwardPassTest : public testing::TestWithParam<std::tuple<std::string, Storage>> {};

TEST_P(CudaForwardPassTest, OneSplitOfACaseGivesTheGoldenAnswers) {
  const auto& [model, storage] = GetParam();
  const std::string dir = GoldenDir() + "/" + model;
  const absl::StatusOr<ModelConfig> config = LoadModelConfig(dir + "/model.yaml");
  ASSERT_TRUE(config.ok()) << config.status();
  const absl::StatusOr<std::vector<GoldenCase>> cases = LoadGolden(dir);
  ASSERT_TRUE(cases.ok()) << cases.status();
  TestEngine engine(*config, dir + "/model.safetensors",
                    Emulated(storage.cache, storage.weights, SmallBlocks()));
  const auto seed = static_cast<uint32_t>(std::random_device{}());
  std::mt19937 random(seed);
  double worst = 0;
  for (const GoldenCase& c : *cases) {
    // float32 is the plain kernel's, which is slow here and does not look at lengths.
    if (storage.cache == DType::kF32 && c.len > 70 && c.prefix != 5) {
      continue;
    }
    std::vector<Split> splits = MakeSplits(c.len, c.prefix, config->local_window, &random);
    if (c.len > 70) {
      splits.erase(splits.begin() + 1);  // row by row takes a minute for hundreds of rows
    }
    const Split& split = splits[random() % splits.size()];
    SCOPED_TRACE("layer " + std::to_string(c.layer) + ", " + std::to_string(c.len) +
                 " rows, prefix " + std::to_string(c.prefix) + ", split " + split.name + ", seed " +
                 std::to_string(seed));
    const Verdict verdict = Compare(Answer(&engine, c, split), c.y, storage.tolerance);
    EXPECT_TRUE(verdict.passed) << verdict.text;
    worst = std::max(worst, verdict.relative);
  }
  engine.engine().pool().Audit();
  std::printf("golden, emulated CUDA: %-12s %-8s worst error of %.0e: %.1e\n", model.c_str(),
              DTypeName(storage.cache), storage.tolerance, worst);
}

INSTANTIATE_TEST_SUITE_P(
    Models, CudaForwardPassTest,
    testing::Combine(testing::ValuesIn(GoldenModels()),
                     testing::Values(Storage{DType::kF32, DType::kF32, kGoldenF32},
                                     Storage{DType::kBF16, DType::kBF16, kGoldenHalfCompute},
                                     Storage{DType::kF16, DType::kF16, kGoldenHalfCompute},
                                     Storage{DType::kFp8E4M3, DType::kBF16, kGoldenFp8Cache})),
    [](const auto& instance) {
      return std::get<0>(instance.param) + "_" + DTypeName(std::get<1>(instance.param).cache);
    });

// Three sessions of different lengths that decode together, over the ends of pages and the window.
// Every fifth step three rows are one session's: the same products for other sequences.
std::vector<float> DecodeTogether(TestEngine* engine, int64_t steps) {
  std::vector<std::string> ids;
  std::vector<int64_t> positions = {40, 61, 3};
  const int64_t d = engine->engine().config().d_model;
  for (size_t i = 0; i < positions.size(); ++i) {
    ids.push_back(engine->Create());
    for (int64_t layer = 0; layer < 2; ++layer) {
      engine->Run(engine->Prefill(ids[i], layer, 0, RandomRows(i + 1, positions[i], d)));
    }
  }
  std::vector<float> answers;
  for (int64_t step = 0; step < steps; ++step) {
    const size_t count = step % 5 == 4 ? 1 : ids.size();
    const auto tokens = static_cast<int64_t>(3 / count);
    const std::vector<std::string> some(ids.begin(), ids.begin() + static_cast<int64_t>(count));
    const std::vector<int64_t> from(positions.begin(),
                                    positions.begin() + static_cast<int64_t>(count));
    for (int64_t layer = 0; layer < 2; ++layer) {
      const auto done = engine->Run(engine->Decode(
          some, layer, from, RandomRows(static_cast<uint64_t>(100 + step), 3, d), tokens));
      EXPECT_TRUE(done->Outcome().ok()) << done->Outcome();
      answers.insert(answers.end(), done->output.begin(), done->output.end());
    }
    for (size_t i = 0; i < count; ++i) {
      positions[i] += tokens;
    }
  }
  return answers;
}

TEST(CudaGraphTest, GraphsGiveTheSameBitsWhileLengthsGrow) {
  constexpr int64_t kSteps = 30;
  for (const DType dtype : {DType::kBF16, DType::kFp8E4M3, DType::kF32}) {
    SCOPED_TRACE(DTypeName(dtype));
    const DType weights = dtype == DType::kF32 ? DType::kF32 : DType::kBF16;
    CudaOptions without = SmallBlocks();
    without.graphs = false;
    EmulatedRuntime* plain_device = nullptr;
    EmulatedRuntime* device = nullptr;
    TestEngine plain(TinyConfig(48, 2), "random:3",
                     Emulated(dtype, weights, without, &plain_device));
    TestEngine graphs(TinyConfig(48, 2), "random:3",
                      Emulated(dtype, weights, SmallBlocks(), &device));
    const std::vector<float> want = DecodeTogether(&plain, kSteps);
    const std::vector<float> got = DecodeTogether(&graphs, kSteps);
    ASSERT_EQ(want.size(), got.size());
    EXPECT_EQ(std::memcmp(want.data(), got.data(), want.size() * sizeof(float)), 0);
    EXPECT_EQ(plain_device->counts().captures, 0);
    // A layer is launched, then captured, then run again. Other lengths may be another class of
    // splits, and small prefills are graphs too.
    EXPECT_GE(device->counts().captures, 2);
    EXPECT_LE(device->counts().captures, 6);
    EXPECT_GE(device->counts().graph_runs, 2 * (kSteps - 3));
  }
}

}  // namespace
}  // namespace attnd
