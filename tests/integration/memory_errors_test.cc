// No room: pages, reservations, sessions, and values that the cache cannot hold.
#include "tests/integration/tiny_server.h"

namespace attnd {
namespace {

using testing::HasSubstr;

TEST(MemoryErrorsTest, AStepWithoutPagesLeavesTheLayerAsItWas) {
  ReadyServer server({"--model=builtin:apex1-tiny", "--kv_cache_bytes=3MiB"});
  Wire wire(server.grpc());
  std::vector<std::string> sessions;
  Outcome outcome;
  v1::PrefillResponse response;
  do {
    sessions.push_back(wire.Create());
    outcome = wire.Prefill(PrefillOf(sessions.back(), kTinyGlobal, 0, TinyRows(1, 200)), &response);
    ASSERT_LT(sessions.size(), 1000u);
  } while (outcome.ok());
  EXPECT_EQ(outcome.text(), "RESOURCE_EXHAUSTED CACHE_FULL");
  EXPECT_THAT(outcome.details, HasSubstr("google.rpc.RetryInfo")) << "waiting helps";
  EXPECT_EQ(wire.Length(sessions.back(), kTinyGlobal), 0);

  // In a Decode the others go on.
  const std::string fed = sessions.front();
  const std::string starved = sessions.back();
  v1::DecodeResponse decoded;
  outcome =
      wire.Decode(DecodeOf(kTinyGlobal, {{fed, 200}, {starved, 0}}, TinyRows(2, 2)), &decoded);
  ASSERT_TRUE(outcome.ok()) << outcome;
  EXPECT_EQ(StatusText(decoded.results(0).status()), "OK");
  if (decoded.results(1).status().code() != 0) {  // a last page may just be left
    EXPECT_EQ(StatusText(decoded.results(1).status()), "RESOURCE_EXHAUSTED CACHE_FULL");
    EXPECT_TRUE(decoded.results(1).status().has_retry_after());
  }
  // Room comes back with the sessions.
  wire.Close(sessions[1]);
  wire.Close(sessions[2]);
  wire.Prefill(starved, kTinyGlobal, 0, TinyRows(1, 200), true);
  for (const std::string& session : sessions) {
    if (session != sessions[1] && session != sessions[2]) {
      wire.Close(session);
    }
  }
  EXPECT_EQ(wire.Stats().kv_cache_used_bytes(), 0);
}

TEST(MemoryErrorsTest, AReservationIsKeptOrRefused) {
  ReadyServer server({"--model=builtin:apex1-tiny", "--kv_cache_bytes=4MiB"});
  Wire wire(server.grpc());
  std::vector<std::string> sessions;
  v1::CreateSessionRequest request;
  request.set_max_tokens(kTinyMaxLength);
  v1::Session info;
  Outcome outcome = wire.Create(request, &info);
  while (outcome.ok()) {
    EXPECT_GT(info.reserved_bytes(), 0);
    sessions.push_back(info.session_id());
    ASSERT_LT(sessions.size(), 1000u);
    outcome = wire.Create(request, &info);
  }
  EXPECT_EQ(outcome.text(), "RESOURCE_EXHAUSTED CACHE_FULL");
  EXPECT_THAT(outcome.details, HasSubstr("google.rpc.RetryInfo"));
  ASSERT_GT(sessions.size(), 0u);
  const std::string greedy = wire.Create();
  v1::PrefillResponse response;
  for (uint32_t layer = 0; layer < 6; ++layer) {  // takes what is left, if anything
    wire.Prefill(PrefillOf(greedy, layer, 0, TinyRows(1, kTinyMaxLength)), &response);
  }
  for (const std::string& session : sessions) {
    for (uint32_t layer = 0; layer < 6; ++layer) {
      EXPECT_EQ(wire.Prefill(session, layer, 0, TinyRows(layer, kTinyMaxLength)).size(),
                static_cast<size_t>(kTinyMaxLength * kTinyWidth));
    }
  }
  const v1::Stats stats = wire.Stats();
  EXPECT_LE(stats.kv_cache_used_bytes() + stats.kv_cache_reserved_bytes(),
            stats.kv_cache_capacity_bytes());
}

TEST(MemoryErrorsTest, InAFullCacheAReservedSessionDecodesToItsLastToken) {
  ReadyServer server({"--model=builtin:apex1-tiny", "--kv_cache_bytes=4MiB"});
  Wire wire(server.grpc());
  const std::string reserved = wire.Create(0, kTinyMaxLength);
  // The others take all that is not promised, down to the last page of each kind.
  std::vector<std::string> others;
  const auto refused = [&](uint32_t layer) {
    v1::PrefillResponse response;
    const Outcome outcome =
        wire.Prefill(PrefillOf(others.back(), layer, 0, TinyRows(2, 64)), &response);
    if (!outcome.ok()) {
      EXPECT_EQ(outcome.text(), "RESOURCE_EXHAUSTED CACHE_FULL");
      EXPECT_THAT(outcome.details, HasSubstr("google.rpc.RetryInfo"));
    }
    return !outcome.ok();
  };
  for (const uint32_t layer : {kTinyGlobal, kTinyLocal}) {
    do {
      others.push_back(wire.Create());
      ASSERT_LT(others.size(), 1000u);
    } while (!refused(layer));
  }
  for (int64_t i = 0; i < kTinyMaxLength; ++i) {
    for (uint32_t layer = 0; layer < 6; ++layer) {
      ASSERT_EQ(wire.Decode(layer, {{reserved, i}}, TinyRows(i, 1)).size(), 64u) << i;
    }
    if (i % 64 == 1) {
      EXPECT_TRUE(refused(kTinyLocal)) << "at " << i;
      EXPECT_TRUE(refused(kTinyGlobal)) << "at " << i;
    }
  }
  v1::DecodeResponse decoded;
  EXPECT_EQ(wire.Decode(DecodeOf(0, {{reserved, kTinyMaxLength}}, TinyRows(1, 1)), &decoded).reason,
            "PAST_MAX_SEQ_LEN")
      << "there is no token more";
}

TEST(MemoryErrorsTest, TooManySessions) {
  ReadyServer server({"--model=builtin:apex1-tiny", "--max_sessions=2"});
  Wire wire(server.grpc());
  const std::string first = wire.Create();
  wire.Create();
  v1::Session info;
  const Outcome outcome = wire.Create(v1::CreateSessionRequest(), &info);
  EXPECT_EQ(outcome.text(), "RESOURCE_EXHAUSTED TOO_MANY_SESSIONS");
  EXPECT_THAT(outcome.message, HasSubstr("2"));
  EXPECT_THAT(outcome.details, HasSubstr("google.rpc.RetryInfo"));
  wire.Close(first);
  wire.Create();
}

TEST(MemoryErrorsTest, ValuesThatTheCacheCannotHold) {
  ReadyServer server({"--model=builtin:apex1-tiny", "--cache_dtype=f16"});
  Wire wire(server.grpc());
  for (uint32_t layer : {kTinyLocal, kTinyGlobal}) {
    const std::string session = wire.Create();
    wire.Prefill(session, layer, 0, TinyRows(1, 3));
    std::vector<float> values = RandomRows(2, 2, kTinyWidth);
    for (int64_t i = kTinyWidth; i < 2 * kTinyWidth; ++i) {
      values[i] *= 1e9f;  // keys far above 65504
    }
    v1::PrefillResponse response;
    const Outcome outcome =
        wire.Prefill(PrefillOf(session, layer, 3, MakeTensor(values, kTinyWidth)), &response);
    EXPECT_EQ(outcome.text(), "INVALID_ARGUMENT NOT_FINITE");
    EXPECT_EQ(wire.Length(session, layer), 3);
    EXPECT_EQ(wire.Prefill(session, layer, 3, TinyRows(2, 2)).size(), 128u);
  }
}

}  // namespace
}  // namespace attnd
