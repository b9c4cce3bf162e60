// Clients that go without a word: nothing leaks, nothing breaks, sessions stay consistent.
#include <future>
#include <random>
#include <thread>

#include "tests/integration/long_prefill.h"
#include "tests/integration/metrics_text.h"
#include "tests/integration/tcp_relay.h"
#include "tests/integration/tiny_server.h"

namespace attnd {
namespace {

class ClientsVanishTest : public testing::Test {
 protected:
  void ExpectNothingLeft() {
    EXPECT_TRUE(WaitIdle(server_));
    v1::ListSessionsResponse list;
    ASSERT_TRUE(wire_.List(1000, "", &list).ok());
    for (const v1::Session& session : list.sessions()) {
      wire_.Close(session.session_id());
    }
    EXPECT_EQ(wire_.Stats().kv_cache_used_bytes(), 0);
    EXPECT_TRUE(server_.alive());
  }

  TempDir dir_;
  ReadyServer server_{SlowModelFlags(dir_)};
  Wire wire_{server_.grpc()};
};

TEST_F(ClientsVanishTest, AConnectionBreaksInTheMiddleOfAPrefill) {
  for (int round = 0; round < 3; ++round) {
    const std::string session = wire_.Create();
    wire_.Prefill(session, kSlowLayer, 0, SlowRows(2, 10));
    TcpRelay relay(server_.grpc());
    Wire doomed(relay.address());
    LongPrefill prefill(doomed, PrefillOf(session, kSlowLayer, 10, SlowRows(1, 30'000)));
    ASSERT_TRUE(WaitRunning(wire_));
    relay.Break();
    EXPECT_EQ(prefill.Wait().code, grpc::StatusCode::UNAVAILABLE) << prefill.Wait();
    ASSERT_TRUE(WaitIdle(server_)) << "work for nobody ends";
    EXPECT_EQ(wire_.Length(session, kSlowLayer), 10);
    EXPECT_EQ(wire_.Decode(kSlowLayer, {{session, 10}}, SlowRows(1, 1)).size(), 16u);
  }
  ExpectNothingLeft();
}

TEST_F(ClientsVanishTest, ASessionWhoseClientVanishedInADecodeStopsComputingAndExpires) {
  v1::CreateSessionRequest request;
  request.mutable_idle_ttl()->set_seconds(1);
  v1::Session info;
  ASSERT_TRUE(wire_.Create(request, &info).ok());
  const std::string session = info.session_id();
  wire_.Prefill(session, kSlowLayer, 0, SlowRows(2, 10));
  TcpRelay relay(server_.grpc());
  Wire doomed(relay.address());
  auto decode = std::async(std::launch::async, [&] {
    v1::DecodeResponse response;
    return doomed.Decode(DecodeOf(kSlowLayer, {{session, 10, 30'000}}, SlowRows(1, 30'000)),
                         &response);
  });
  ASSERT_TRUE(WaitRunning(wire_));
  relay.Break();
  EXPECT_EQ(decode.get().code, grpc::StatusCode::UNAVAILABLE);
  ASSERT_TRUE(WaitIdle(server_)) << "work for nobody ends";
  EXPECT_EQ(wire_.Length(session, kSlowLayer), 10) << "as before the step";
  EXPECT_EQ(
      Scrape(server_.http()).Get("attnd_rpc_requests_total{code=\"CANCELLED\",method=\"Decode\"}"),
      1)
      << "one call is given up once";
  ASSERT_TRUE(WaitUntil([&] { return wire_.Stats().sessions() == 0; }, Seconds(10)));
  EXPECT_EQ(wire_.Get(session, &info).text(), "NOT_FOUND SESSION_EXPIRED");
  ExpectNothingLeft();
}

TEST_F(ClientsVanishTest, AConnectionBreaksInTheMiddleOfAStream) {
  const std::string session = wire_.Create();
  const std::string other = wire_.Create();
  TcpRelay relay(server_.grpc());
  {
    Wire doomed(relay.address());
    StepsCall steps(doomed);
    ASSERT_TRUE(steps.Write(StepOf(1, PrefillOf(session, kSlowLayer, 0, SlowRows(1, 30'000)))));
    for (uint64_t i = 0; i < 10; ++i) {
      ASSERT_TRUE(steps.Write(StepOf(
          2 + i,
          DecodeOf(kSlowLayer, {{session, 30'000 + static_cast<int64_t>(i)}}, SlowRows(1, 1)))));
    }
    ASSERT_TRUE(WaitQueued(wire_, 10));
    relay.Break();
    EXPECT_EQ(steps.Finish().code, grpc::StatusCode::UNAVAILABLE);
  }
  ASSERT_TRUE(WaitIdle(server_));
  EXPECT_EQ(wire_.Length(session, kSlowLayer), 0);
  EXPECT_EQ(wire_.Decode(kSlowLayer, {{session, 0}}, SlowRows(1, 1)).size(), 16u);
  ExpectNothingLeft();
}

TEST_F(ClientsVanishTest, AStreamIsCancelledWithStepsInIt) {
  const std::string session = wire_.Create();
  {
    StepsCall steps(wire_);
    ASSERT_TRUE(steps.Write(StepOf(1, PrefillOf(session, kSlowLayer, 0, SlowRows(1, 30'000)))));
    ASSERT_TRUE(steps.Write(StepOf(2, DecodeOf(kSlowLayer, {{session, 30'000}}, SlowRows(1, 1)))));
    ASSERT_TRUE(WaitQueued(wire_, 1));
    steps.Cancel();
    EXPECT_EQ(steps.Finish().code, grpc::StatusCode::CANCELLED);
  }
  ASSERT_TRUE(WaitIdle(server_));
  EXPECT_EQ(wire_.Length(session, kSlowLayer), 0);
  ExpectNothingLeft();
}

// What one of the threads below does: calls, each cancelled after up to 3 ms, every other one
// on a stream. Returns how many took effect.
int Storm(Wire& wire, const std::string& session, uint64_t seed, int calls) {
  std::mt19937_64 random(seed);
  int done = 0;
  for (int i = 0; i < calls; ++i) {
    v1::PrefillRequest request = PrefillOf(session, i % 2, 0, SlowRows(i % 5, 300));
    request.set_rewind(true);
    const Seconds delay(static_cast<double>(random() % 3000) * 1e-6);
    if (random() % 2 == 0) {
      LongPrefill prefill(wire, request);
      Pause(delay);
      prefill.Cancel();
      const Outcome& outcome = prefill.Wait();
      EXPECT_TRUE(outcome.ok() || outcome.code == grpc::StatusCode::CANCELLED) << outcome;
      done += outcome.ok() ? 1 : 0;
    } else {
      StepsCall steps(wire);
      steps.Write(StepOf(1, request));
      Pause(delay);
      steps.Cancel();
      const Outcome outcome = steps.Finish();
      EXPECT_EQ(outcome.code, grpc::StatusCode::CANCELLED) << outcome;
    }
  }
  return done;
}

TEST_F(ClientsVanishTest, AThousandCancelsAtRandomMoments) {
  constexpr int kThreads = 4;
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::vector<std::string> sessions;
  for (int t = 0; t < kThreads; ++t) {
    sessions.push_back(wire_.Create());
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Wire own(server_.grpc());
      Storm(own, sessions[static_cast<size_t>(t)], seed + static_cast<uint64_t>(t), 250);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  ASSERT_TRUE(WaitIdle(server_));
  const std::string fresh = wire_.Create();
  for (uint32_t layer : {0u, 1u}) {
    const std::vector<float> right = wire_.Prefill(fresh, layer, 0, SlowRows(9, 300));
    for (const std::string& session : sessions) {
      const int64_t length = wire_.Length(session, static_cast<int>(layer));
      EXPECT_TRUE(length == 0 || length == 300) << length << ": never half a step";
      EXPECT_EQ(wire_.Prefill(session, layer, 0, SlowRows(9, 300), true), right);
    }
  }
  ExpectNothingLeft();
}

}  // namespace
}  // namespace attnd
