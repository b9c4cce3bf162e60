#include "core/cache_plan.h"

#include <gtest/gtest.h>

#include "core/planner.h"

namespace attnd {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

ModelConfig Large() { return LoadModelConfig("builtin:apex1-large").value(); }

TEST(CachePlan, LargeAt128K) {
  CacheQuestion question;
  question.context = 131072;
  const CachePlan plan = PlanCache(Large(), question).value();
  EXPECT_EQ(plan.global_layers, 12);
  EXPECT_EQ(plan.local_layers, 60);
  // Of one layer, 2-byte elements: MHA 8 GiB, of which K alone is 4.
  EXPECT_EQ(plan.mha_token_bytes * 131072, 8 * kGiB);
  EXPECT_EQ(plan.session_mha_bytes, 72 * 8 * kGiB);
  EXPECT_EQ(plan.session_gqa_bytes, 72 * kGiB / 2);
  EXPECT_EQ(plan.session_mla_bytes, 72 * kGiB / 4);
  EXPECT_EQ(plan.session_local_bytes, int64_t{60} * 8192 * 2048 * 2);
  EXPECT_EQ(plan.session_global_bytes, int64_t{12} * 131072 * 1024 * 2);
  EXPECT_EQ(plan.session_bytes, plan.session_local_bytes + plan.session_global_bytes);
  EXPECT_EQ(plan.token_bytes, 2 * (60 * 2048 + 12 * 1024));
  EXPECT_EQ(plan.token_bytes_past_window, 2 * 12 * 1024);
  EXPECT_DOUBLE_EQ(plan.window_saving, 16);
  // 8192 + 64 tokens are 129 pages, and one more.
  EXPECT_EQ(plan.session_page_bytes,
            64 * (int64_t{60} * 130 * 2048 * 2 + int64_t{12} * 2048 * 1024 * 2));
  EXPECT_DOUBLE_EQ(plan.decode_flop,
                   60 * LocalDecodeFlop(Large(), 131072) + 12 * GlobalDecodeFlop(Large(), 131072));
}

TEST(CachePlan, AWindowOf4KIs32TimesCheaper) {
  ModelConfig config = Large();
  config.local_window = 4096;
  CacheQuestion question;
  question.context = 131072;
  EXPECT_DOUBLE_EQ(PlanCache(config, question)->window_saving, 32);
  question.context = 100;
  EXPECT_DOUBLE_EQ(PlanCache(config, question)->window_saving, 1);
}

TEST(CachePlan, PagesAreRoundedUpAndSessionsMultiply) {
  CacheQuestion question;
  question.context = 65;
  question.sessions = 1000;
  question.cache_dtype = DType::kF32;
  const ModelConfig config = LoadModelConfig("builtin:apex1-small").value();
  const CachePlan plan = PlanCache(config, question).value();
  const int64_t row = 4 * (10 * 256 + 2 * 128);
  EXPECT_EQ(plan.token_bytes, row);
  EXPECT_EQ(plan.session_bytes, 65 * row);
  EXPECT_EQ(plan.session_page_bytes, 128 * row);
  EXPECT_EQ(plan.total_bytes, 65000 * row);
  EXPECT_EQ(plan.total_page_bytes, 128000 * row);
}

TEST(CachePlan, Int8CountsScalesAndRotaryKeysOfTwoBytes) {
  CacheQuestion question;
  question.context = 64;
  question.cache_dtype = DType::kInt8;
  const CachePlan plan = PlanCache(Large(), question).value();
  EXPECT_EQ(plan.mha_token_bytes, 2 * 128 * (128 + 4));
  EXPECT_EQ(plan.gqa_token_bytes, 2 * 8 * (128 + 4));
  EXPECT_EQ(plan.mla_token_bytes, 512 + 4 + 2 * 8 * 64);
  EXPECT_EQ(plan.session_page_bytes, 64 * (60 * plan.gqa_token_bytes + 12 * plan.mla_token_bytes));
}

TEST(CachePlan, RefusesWhatIsOutOfRangeByName) {
  const auto message = [](const ModelConfig& config, const CacheQuestion& question) {
    return std::string(PlanCache(config, question).status().message());
  };
  CacheQuestion question;
  EXPECT_EQ(message(Large(), question), "context is 0; expected 1 to 16777216");
  question.context = 1;
  question.sessions = 0;
  EXPECT_EQ(message(Large(), question), "sessions is 0; expected 1 to 1073741824");
  question.sessions = 1;
  question.max_rewind = -1;
  EXPECT_EQ(message(Large(), question), "max_rewind is -1; expected 0 to 2147483648");
}

// The largest configuration that passes validation, at the largest context.
TEST(CachePlan, NothingOverflows) {
  ModelConfig config = Large();
  config.d_model = 1 << 20;
  config.n_layers = 4096;
  config.d_head = config.d_head_rope = 1 << 14;
  config.n_heads_q = config.n_heads_kv = 256;
  config.d_kv_compressed = 1 << 14;
  config.max_seq_len = 1 << 24;
  config.local_window = int64_t{1} << 31;
  ASSERT_TRUE(ValidateModelConfig(config, "largest").ok()) << ValidateModelConfig(config, "l");
  CacheQuestion question;
  question.context = 1 << 24;
  question.cache_dtype = DType::kF32;
  question.max_rewind = int64_t{1} << 31;
  const CachePlan plan = PlanCache(config, question).value();
  EXPECT_GT(plan.session_mha_bytes, 0);
  EXPECT_GE(plan.session_page_bytes, plan.session_bytes);
  EXPECT_GT(plan.session_bytes, 0);
  question.sessions = int64_t{1} << 30;
  EXPECT_NE(std::string(PlanCache(config, question).status().message()).find("sessions is"),
            std::string::npos);
}

}  // namespace
}  // namespace attnd
