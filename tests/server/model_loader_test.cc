// From the configuration to a model: bytes, automatic values, what GetModel says.
#include "server/model_loader.h"

#include <map>

#include "gtest/gtest.h"

namespace attnd::server {
namespace {

Config TinyModel() {
  Config config;
  config.model = "builtin:apex1-tiny";
  config.device = "cpu";
  return config;
}

OpenedDevice OpenCpu(const Config& config) {
  absl::StatusOr<OpenedDevice> device = OpenDevice(config, {CpuDevice()});
  EXPECT_TRUE(device.ok()) << device.status();
  return *std::move(device);
}

TEST(ModelLoaderTest, ThePartOfWhatIsLeftBesideTheWeights) {
  constexpr int64_t kGiB = int64_t{1} << 30;
  EXPECT_EQ(DefaultCacheBytes(10 * kGiB, 2 * kGiB, 0.5), 4 * kGiB);
  EXPECT_EQ(DefaultCacheBytes(10 * kGiB, 2 * kGiB, 0.75), 6 * kGiB);
  EXPECT_EQ(DefaultCacheBytes(kGiB, 2 * kGiB, 0.5), int64_t{64} << 20);
  EXPECT_EQ(DefaultCacheBytes(0, 0, 0.5), int64_t{64} << 20);
}

TEST(ModelLoaderTest, WeightsCountInTheDtypeTheyAreHeldIn) {
  Config config = TinyModel();
  const auto model = OpenModel(config);
  ASSERT_TRUE(model.ok()) << model.status();
  const int64_t f32 = WeightBytes(config, *model);
  EXPECT_GT(f32, 0);
  config.weight_dtype = "bf16";
  EXPECT_EQ(WeightBytes(config, *model) * 2, f32);
}

TEST(ModelLoaderTest, AutomaticValuesAreFilledInAndOthersKept) {
  Config config = TinyModel();
  const auto model = OpenModel(config);
  ASSERT_TRUE(model.ok());
  ResolveAutomatic(*model, OpenCpu(config), &config);
  EXPECT_EQ(config.device, "cpu");
  EXPECT_EQ(config.cache_dtype, "f32");
  EXPECT_EQ(config.prefill_chunk_gflop, 5);
  EXPECT_GE(config.threads, 1);
  EXPECT_GE(config.kv_cache_bytes, int64_t{64} << 20);
  Config given = TinyModel();
  given.threads = 3;
  given.kv_cache_bytes = 12345678;
  given.cache_dtype = "f16";
  given.prefill_chunk_gflop = 7;
  ResolveAutomatic(*model, OpenCpu(given), &given);
  EXPECT_EQ(given.prefill_chunk_gflop, 7);
  EXPECT_EQ(given.threads, 3);
  EXPECT_EQ(given.kv_cache_bytes, 12345678);
  EXPECT_EQ(given.cache_dtype, "f16");
}

TEST(ModelLoaderTest, ABudgetThatCannotBeKeptIsRefused) {
  Config config = TinyModel();
  const auto model = OpenModel(config);
  ASSERT_TRUE(model.ok());
  const MemoryLimit memory{int64_t{1} << 40, 0, "a test"};
  config.kv_cache_bytes = int64_t{1} << 20;
  EXPECT_NE(CheckModel(config, *model, memory).message().find("at least 3145728"),
            std::string::npos);
  config.kv_cache_bytes = int64_t{1} << 50;
  EXPECT_NE(CheckModel(config, *model, memory).message().find("may be used here"),
            std::string::npos);
  config.kv_cache_bytes = int64_t{3} << 20;
  EXPECT_TRUE(CheckModel(config, *model, memory).ok());
  config.mla_shadow_bytes = 100;
  EXPECT_NE(CheckModel(config, *model, memory).message().find("expected 0 or at least"),
            std::string::npos);
  config.mla_shadow_bytes = int64_t{1} << 50;
  EXPECT_NE(CheckModel(config, *model, memory).message().find("--kv_cache_bytes + --mla_shadow"),
            std::string::npos);
  config.mla_shadow_bytes = int64_t{1} << 20;
  EXPECT_TRUE(CheckModel(config, *model, memory).ok());
}

TEST(ModelLoaderTest, ThePlanNamesItsBytes) {
  Config config = TinyModel();
  config.kv_cache_bytes = int64_t{1} << 30;
  const auto model = OpenModel(config);
  ASSERT_TRUE(model.ok());
  std::map<std::string, std::string> plan;
  for (const auto& [name, value] : PlannedBytes(config, *model)) {
    plan[name] = value;
  }
  EXPECT_EQ(plan["model"], "apex1-tiny");
  EXPECT_EQ(plan["weights"], "random:1");
  EXPECT_EQ(plan["kv_cache_bytes"], "1073741824");
  EXPECT_EQ(plan["weight_bytes"], std::to_string(WeightBytes(config, *model)));
  EXPECT_GT(std::stoll(plan["sessions_at_max_seq_len"]), 0);
}

TEST(ModelLoaderTest, WhatGetModelSays) {
  Config config = TinyModel();
  config.kv_cache_bytes = int64_t{64} << 20;
  config.cache_dtype = "bf16";
  config.threads = 1;
  const auto model = OpenModel(config);
  ASSERT_TRUE(model.ok());
  const SystemClock clock;
  const auto engine =
      MakeEngine(config, *model, OpenCpu(config).backend, clock, [](const BatchReport&) {});
  ASSERT_TRUE(engine.ok()) << engine.status();
  const auto info = MakeModelInfo(config, *model, **engine, "1.2.3");
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->name(), "apex1-tiny");
  EXPECT_EQ(info->fingerprint().rfind("xxh3:", 0), 0U);
  EXPECT_EQ(info->d_model(), model->config.d_model);
  EXPECT_EQ(info->layers_size(), model->config.n_layers);
  EXPECT_EQ(info->layers(0), v1::LAYER_KIND_LOCAL_GQA);
  EXPECT_EQ(info->weight_dtype(), v1::DTYPE_F32);
  EXPECT_EQ(info->cache_dtype(), v1::DTYPE_BF16);
  EXPECT_EQ(info->page_tokens(), 64);
  EXPECT_EQ(info->local_bytes_per_token(), 2 * 2 * model->config.n_heads_kv * model->config.d_head);
  EXPECT_EQ(
      info->global_bytes_per_token(),
      2 * (model->config.d_kv_compressed + model->config.n_heads_kv * model->config.d_head_rope));
  EXPECT_EQ(info->max_message_bytes(), config.max_message_bytes);
  EXPECT_EQ(info->device().rfind("cpu:", 0), 0U);
  EXPECT_EQ(info->version(), "1.2.3");
  EXPECT_EQ(info->weights(), "random:1");
  EXPECT_EQ(info->hidden_dtypes_size(), 3);
  EXPECT_EQ(info->kv_cache_capacity_bytes(), int64_t{64} << 20);
}

TEST(ModelLoaderTest, AnInt8CacheIsReportedInExactBytes) {
  Config config = TinyModel();
  config.kv_cache_bytes = int64_t{64} << 20;
  config.cache_dtype = "int8";
  config.threads = 1;
  const auto model = OpenModel(config);
  ASSERT_TRUE(model.ok());
  const SystemClock clock;
  const auto engine =
      MakeEngine(config, *model, OpenCpu(config).backend, clock, [](const BatchReport&) {});
  ASSERT_TRUE(engine.ok()) << engine.status();
  const auto info = MakeModelInfo(config, *model, **engine, "1.2.3");
  ASSERT_TRUE(info.ok()) << info.status();
  const ModelConfig& c = model->config;
  EXPECT_EQ(info->cache_dtype(), v1::DTYPE_INT8);
  EXPECT_EQ(info->local_bytes_per_token(), 2 * c.n_heads_kv * (c.d_head + 4));
  EXPECT_EQ(info->global_bytes_per_token(),
            c.d_kv_compressed + 4 + 2 * c.n_heads_kv * c.d_head_rope);
  const PagePool& pool = (*engine)->pool();
  EXPECT_EQ(pool.page_bytes(PageKind::kLocal), 64 * info->local_bytes_per_token());
  EXPECT_EQ(pool.page_bytes(PageKind::kGlobal), 64 * info->global_bytes_per_token());
}

TEST(ModelLoaderTest, AMissingFileIsNamed) {
  Config config = TinyModel();
  config.weights = "/does/not/exist.safetensors";
  EXPECT_NE(OpenModel(config).status().message().find("/does/not/exist.safetensors"),
            std::string::npos);
  config.model = "/does/not/exist.yaml";
  EXPECT_NE(OpenModel(config).status().message().find("/does/not/exist.yaml"), std::string::npos);
}

}  // namespace
}  // namespace attnd::server
