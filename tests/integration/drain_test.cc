// SIGTERM: not ready at once, served for a while, then refused; what runs finishes; exit 0.
#include "tests/integration/http_get.h"
#include "tests/integration/long_prefill.h"
#include "tests/integration/metrics_text.h"
#include "tests/integration/tiny_server.h"

namespace attnd {
namespace {

using std::to_string;

class DrainTest : public testing::Test {
 protected:
  std::vector<std::string> Flags(double drain_seconds, double grace_seconds) {
    std::vector<std::string> flags = SlowModelFlags(dir_);
    flags.push_back("--drain_seconds=" + to_string(drain_seconds));
    flags.push_back("--shutdown_grace_seconds=" + to_string(grace_seconds));
    return flags;
  }

  TempDir dir_;
};

TEST_F(DrainTest, NotReadyAtOnceAndStillServed) {
  ReadyServer server(Flags(3, 30));
  Wire wire(server.grpc());
  const std::string session = wire.Create();
  server.Signal(SIGTERM);
  ASSERT_TRUE(
      WaitUntil([&] { return HttpGet(server.http(), "/readyz").status == 503; }, Seconds(2)));
  Wire::Health health;
  for (const char* service : {"", "attnd.v1.AttentionService"}) {
    ASSERT_TRUE(wire.CheckHealth(service, &health).ok());
    EXPECT_EQ(health, Wire::Health::kNotServing);
  }
  EXPECT_EQ(HttpGet(server.http(), "/healthz").status, 200);
  EXPECT_TRUE(wire.Stats().draining());
  EXPECT_EQ(Scrape(server.http()).Get("attnd_draining"), 1);
  EXPECT_EQ(wire.Prefill(session, kSlowLayer, 0, SlowRows(1, 5)).size(), 80u);
  wire.Create();
  EXPECT_EQ(server.WaitExit(), 0);
}

TEST_F(DrainTest, NewStepsAreRefusedWhileARunningOneFinishes) {
  ReadyServer server(Flags(0.3, 300));
  Wire wire(server.grpc());
  const std::string session = wire.Create();
  const std::string other = wire.Create();
  StepsCall steps(wire);
  ASSERT_TRUE(steps.Write(StepOf(1, DecodeOf(kSlowLayer, {{other, 0}}, SlowRows(1, 1)))));
  EXPECT_EQ(StatusText(steps.Next().status()), "OK");
  LongPrefill prefill(wire, session, 12'000);
  ASSERT_TRUE(WaitRunning(wire));
  server.Signal(SIGTERM);
  v1::Session info;
  Outcome outcome;
  ASSERT_TRUE(WaitUntil([&] {
    outcome = wire.Create(v1::CreateSessionRequest(), &info);
    return !outcome.ok();
  }));
  EXPECT_EQ(outcome.text(), "UNAVAILABLE DRAINING");
  EXPECT_THAT(outcome.details, testing::HasSubstr("google.rpc.RetryInfo"));
  v1::PrefillResponse response;
  outcome = wire.Prefill(PrefillOf(other, kSlowLayer, 1, SlowRows(1, 5)), &response);
  EXPECT_EQ(outcome.text(), "UNAVAILABLE DRAINING");
  ASSERT_TRUE(steps.Write(StepOf(2, DecodeOf(kSlowLayer, {{other, 1}}, SlowRows(1, 1)))));
  EXPECT_EQ(StatusText(steps.Next().status()), "UNAVAILABLE DRAINING");
  EXPECT_EQ(wire.Length(other, kSlowLayer), 1) << "looking is allowed";
  EXPECT_FALSE(prefill.done());
  EXPECT_TRUE(prefill.Wait().ok()) << prefill.Wait();
  EXPECT_EQ(prefill.response().length(), 12'000);
  EXPECT_EQ(steps.Finish().text(), "UNAVAILABLE DRAINING");
  EXPECT_EQ(server.WaitExit(), 0);
}

TEST_F(DrainTest, WhatDoesNotFinishInTheGraceIsFailed) {
  ReadyServer server(Flags(0, 0.5));
  Wire wire(server.grpc());
  const std::string session = wire.Create();
  LongPrefill prefill(wire, session);
  ASSERT_TRUE(WaitRunning(wire));
  server.Signal(SIGTERM);
  EXPECT_EQ(prefill.Wait().code, grpc::StatusCode::UNAVAILABLE) << prefill.Wait();
  EXPECT_EQ(server.WaitExit(Seconds(10)), 0);
}

TEST_F(DrainTest, AnIdleOpenStreamDoesNotHoldTheServer) {
  ReadyServer server(Flags(0, 60));
  Wire wire(server.grpc());
  StepsCall steps(wire);
  const std::string session = wire.Create();
  ASSERT_TRUE(steps.Write(StepOf(1, DecodeOf(kSlowLayer, {{session, 0}}, SlowRows(1, 1)))));
  EXPECT_EQ(StatusText(steps.Next().status()), "OK");
  StepsCall silent(wire);
  server.Signal(SIGTERM);
  EXPECT_EQ(server.WaitExit(Seconds(10)), 0) << "60 s of grace were not needed";
  EXPECT_EQ(steps.Finish().text(), "UNAVAILABLE DRAINING");
}

TEST_F(DrainTest, AnIdleServerEndsQuickly) {
  ReadyServer server(Flags(0, 60));
  Wire wire(server.grpc());
  wire.Create();
  server.Signal(SIGINT);
  EXPECT_EQ(server.WaitExit(Seconds(5)), 0);
}

TEST_F(DrainTest, ASecondSignalEndsItAtOnce) {
  ReadyServer server(Flags(600, 600));
  server.Signal(SIGTERM);
  ASSERT_TRUE(WaitUntil([&] { return HttpGet(server.http(), "/readyz").status == 503; }));
  EXPECT_TRUE(server.alive());
  server.Signal(SIGTERM);
  const std::optional<int> code = server.WaitExit(Seconds(5));
  ASSERT_TRUE(code.has_value());
  EXPECT_EQ(*code, 128 + SIGTERM);
}

TEST_F(DrainTest, DrainByCallIsNotReadyAndServes) {
  ReadyServer server(Flags(0, 30));
  Wire wire(server.grpc());
  const std::string session = wire.Create();
  grpc::ClientContext context;
  Prepare(&context);
  v1::DrainResponse drained;
  ASSERT_TRUE(wire.admin().Drain(&context, v1::DrainRequest(), &drained).ok());
  EXPECT_EQ(drained.sessions(), 1);
  EXPECT_TRUE(wire.Stats().draining());
  EXPECT_EQ(Scrape(server.http()).Get("attnd_draining"), 1);
  EXPECT_EQ(HttpGet(server.http(), "/readyz").status, 503);
  Wire::Health health;
  ASSERT_TRUE(wire.CheckHealth("", &health).ok());
  EXPECT_EQ(health, Wire::Health::kNotServing);
  EXPECT_EQ(wire.Prefill(session, kSlowLayer, 0, SlowRows(1, 5)).size(), 80u);
  EXPECT_TRUE(server.alive());
  server.Signal(SIGTERM);
  EXPECT_EQ(server.WaitExit(Seconds(10)), 0);
}

}  // namespace
}  // namespace attnd
