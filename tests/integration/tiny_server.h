// The fixture of most tests: a server of APEX-1 tiny and a connection to it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/integration/wire_client.h"
#include "tests/support/test_engine.h"

namespace attnd {

inline constexpr int64_t kTinyWidth = 64;
inline constexpr uint32_t kTinyLocal = 0;
inline constexpr uint32_t kTinyGlobal = 5;
inline constexpr int64_t kTinyMaxLength = 256;

inline std::vector<std::string> TinyFlags(const std::vector<std::string>& more = {}) {
  std::vector<std::string> flags = {"--model=builtin:apex1-tiny", "--kv_cache_bytes=64MiB"};
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

// Rows of that model, a function of the seed.
inline v1::Tensor TinyRows(uint64_t seed, int64_t rows) {
  return MakeTensor(RandomRows(seed, rows, kTinyWidth), kTinyWidth);
}

class TinyServerTest : public testing::Test {
 protected:
  explicit TinyServerTest(const std::vector<std::string>& more = {})
      : server_(TinyFlags(more)), wire_(server_.grpc()) {}

  // Every test leaves a server that is alive and serves.
  void TearDown() override {
    ASSERT_TRUE(server_.alive()) << server_.Stderr();
    const std::string session = wire_.Create();
    EXPECT_EQ(wire_.Prefill(session, kTinyLocal, 0, TinyRows(1, 3)).size(), 3 * kTinyWidth);
    EXPECT_GT(wire_.Close(session), 0);
    EXPECT_EQ(server_.Stderr().find("internal_error"), std::string::npos) << server_.Stderr();
  }

  // The outcome of a prefill and what it says of the layer afterwards: nothing may have changed.
  Outcome Refused(const v1::PrefillRequest& request) {
    const std::string& session = request.session_id();
    v1::Session before, after;
    const bool there = wire_.Get(session, &before).ok();
    v1::PrefillResponse response;
    const Outcome outcome = wire_.Prefill(request, &response);
    EXPECT_FALSE(outcome.ok());
    EXPECT_FALSE(outcome.message.empty());
    EXPECT_EQ(outcome.message.find('\n'), std::string::npos) << outcome;
    EXPECT_FALSE(outcome.server_id.empty());
    EXPECT_EQ(wire_.Get(session, &after).ok(), there);
    EXPECT_THAT(after.layer_lengths(), testing::ElementsAreArray(before.layer_lengths()));
    EXPECT_EQ(after.cache_bytes(), before.cache_bytes());
    return outcome;
  }

  ReadyServer server_;
  Wire wire_;
};

}  // namespace attnd
