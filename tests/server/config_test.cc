// The knobs: their defaults are valid, and what is not supported is refused by name.
#include "server/config.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnd::server {
namespace {

using ::testing::HasSubstr;

absl::Status Validate(const std::vector<std::string>& args) {
  Config config;
  FlagTable table = MakeFlagTable(&config);
  if (absl::Status status = table.Parse(args); !status.ok()) {
    return status;
  }
  return ValidateConfig(config, {CpuDevice()});
}

TEST(ConfigTest, DefaultsAreValid) { EXPECT_TRUE(Validate({}).ok()); }

TEST(ConfigTest, DefaultsAreThoseOfTheEngine) {
  const EngineOptions from_config = MakeEngineOptions(Config());
  const EngineOptions own;
  EXPECT_EQ(from_config.cache_dtype, own.cache_dtype);
  EXPECT_EQ(from_config.weight_dtype, own.weight_dtype);
  EXPECT_EQ(from_config.max_rewind, own.max_rewind);
  EXPECT_EQ(from_config.idle_ttl_ns, own.idle_ttl_ns);
  EXPECT_EQ(from_config.max_idle_ttl_ns, own.max_idle_ttl_ns);
  EXPECT_EQ(from_config.max_sessions, own.max_sessions);
  EXPECT_EQ(from_config.max_queue, own.max_queue);
}

TEST(ConfigTest, TheDefaultsOfTheContract) {
  Config config;
  FlagTable table = MakeFlagTable(&config);
  std::map<std::string, std::string> values;
  for (const auto& [name, value] : table.Values()) {
    values[name] = value;
  }
  const std::map<std::string, std::string> expected = {{"model", "builtin:apex1-small"},
                                                       {"weights", "random:1"},
                                                       {"listen", "127.0.0.1:8470"},
                                                       {"http", "127.0.0.1:9470"},
                                                       {"device", "auto"},
                                                       {"threads", "auto"},
                                                       {"isa", "best"},
                                                       {"weight_dtype", "file"},
                                                       {"kv_cache_bytes", "auto"},
                                                       {"max_rewind", "64"},
                                                       {"idle_ttl", "10m"},
                                                       {"max_idle_ttl", "24h"},
                                                       {"max_sessions", "100000"},
                                                       {"evict", "none"},
                                                       {"max_inflight_bytes", "1GiB"},
                                                       {"max_stream_steps", "64"},
                                                       {"max_message_bytes", "256MiB"},
                                                       {"drain_seconds", "5"},
                                                       {"shutdown_grace_seconds", "30"},
                                                       {"tls_cert", "off"},
                                                       {"auth_tokens_file", "off"},
                                                       {"log_format", "text"}};
  for (const auto& [name, value] : expected) {
    EXPECT_EQ(values[name], value) << name;
  }
}

TEST(ConfigTest, EveryFlagHasAGroupAReasonAndOneRow) {
  Config config;
  std::set<std::string> names;
  for (const auto& [name, value] : MakeFlagTable(&config).Values()) {
    EXPECT_TRUE(names.insert(name).second) << name;
  }
  EXPECT_GE(names.size(), 25U);
}

TEST(ConfigTest, WhatIsNotSupportedIsRefusedByName) {
  const struct {
    std::vector<std::string> args;
    const char* message;
  } cases[] = {
      {{"--device=abacus"}, "--device=abacus: this build supports auto, cpu"},
      {{"--device=cuda"}, "--device=cuda: this build supports auto, cpu"},
      {{"--device=cuda:-1"}, "--device=cuda:-1: this build supports auto, cpu"},
      {{"--cache_dtype=int4"}, "--cache_dtype=int4: device cpu supports f32, bf16, f16, int8"},
      {{"--device=cpu", "--cache_dtype=fp8_e4m3"},
       "--cache_dtype=fp8_e4m3: device cpu supports f32, bf16, f16, int8"},
      {{"--weight_dtype=int8"}, "--weight_dtype=int8: expected one of file, f32, bf16, f16"},
      {{"--evict=lru"}, "--evict=lru: expected one of none, idle_lru"},
      {{"--isa=sse9"}, "--isa=sse9: this machine and build have best"},
      {{"--tls_cert=a"}, "--tls_cert=a: TLS needs both"},
      {{"--tls_key=a"}, "--tls_key=a: TLS needs both"},
      {{"--tls_client_ca=a"}, "--tls_client_ca=a: needs --tls_cert"},
      {{"--idle_ttl=25h"}, "--idle_ttl is longer than --max_idle_ttl"},
      {{"--listen=nowhere"}, "--listen=nowhere: expected host:port"},
      {{"--listen=1.2.3.4:70000"}, "--listen=1.2.3.4:70000: expected host:port"},
      {{"--listen=unix:"}, "--listen=unix:: expected unix:path"},
      {{"--http=9470"}, "--http=9470: expected host:port"},
      {{"--max_message_bytes=3GiB"}, "--max_message_bytes=3GiB: expected bytes"},
      {{"--kv_cache_bytes=1KiB"}, "--kv_cache_bytes=1KiB: expected bytes"},
      {{"--drain_seconds=-1"}, "--drain_seconds=-1: expected a number"},
  };
  for (const auto& c : cases) {
    const absl::Status status = Validate(c.args);
    EXPECT_FALSE(status.ok()) << c.args.front();
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
  }
}

TEST(ConfigTest, AcceptsEveryKindOfAddress) {
  EXPECT_TRUE(Validate({"--listen=0.0.0.0:1", "--listen=[::1]:0", "--listen=unix:/tmp/s",
                        "--listen=localhost:8470", "--http="})
                  .ok());
}

TEST(ConfigTest, AutomaticNumbersHaveAName) {
  Config config;
  FlagTable table = MakeFlagTable(&config);
  ASSERT_TRUE(table.Parse({"--prefill_chunk_gflop=12.5", "--threads=3"}).ok());
  EXPECT_EQ(MakeEngineOptions(config).prefill_chunk_gflop, 12.5);
  ASSERT_TRUE(MakeFlagTable(&config).Parse({"--prefill_chunk_gflop=auto", "--threads=auto"}).ok());
  EXPECT_EQ(config.prefill_chunk_gflop, 0);
  EXPECT_EQ(config.threads, 0);
  EXPECT_EQ(MakeEngineOptions(config).prefill_chunk_gflop, 5);
}

TEST(ConfigTest, AChunkIsNeverLargerThanABatch) {
  Config config;
  config.max_batch_rows = 100;
  EXPECT_EQ(MakeEngineOptions(config).prefill_chunk_rows, 100);
}

}  // namespace
}  // namespace attnd::server
