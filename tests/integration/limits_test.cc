// A flood is answered, not stored.
#include "tests/integration/long_prefill.h"
#include "tests/integration/metrics_text.h"
#include "tests/integration/tiny_server.h"

namespace attnd {
namespace {

TEST(LimitsTest, AFloodOfLargePrefillsIsBoundedByTheQueue) {
  constexpr int kQueue = 16;
  constexpr int kFlood = 600;
  TempDir dir;
  std::vector<std::string> flags = SlowModelFlags(dir);
  flags.push_back("--max_queue=" + std::to_string(kQueue));
  ReadyServer server(flags);
  Wire wire(server.grpc());
  const std::string session = wire.Create();
  LongPrefill stall(wire, session, 40'000);
  ASSERT_TRUE(WaitRunning(wire));
  const int64_t before = server.RssBytes();
  int64_t most = 0;
  int refused = 0;
  std::string details;
  {
    Wire flooding(server.grpc());
    const v1::PrefillRequest request =
        PrefillOf(session, kSlowLayer, 40'000, SlowRows(2, 16'384));  // 1 MiB
    std::vector<std::unique_ptr<LongPrefill>> flood;
    for (int i = 0; i < kFlood; ++i) {
      flood.push_back(std::make_unique<LongPrefill>(flooding, request));
      if (i % 20 == 0) {
        most = std::max(most, server.RssBytes() - before);
      }
    }
    const auto done = [&] {
      most = std::max(most, server.RssBytes() - before);
      return std::count_if(flood.begin(), flood.end(), [](const auto& f) { return f->done(); });
    };
    ASSERT_TRUE(WaitUntil([&] { return done() >= kFlood - kQueue; })) << done();
    EXPECT_EQ(done(), kFlood - kQueue) << "those in the queue wait";
    EXPECT_EQ(wire.Stats().queued_steps(), kQueue);
    for (const auto& call : flood) {
      if (call->done()) {
        EXPECT_EQ(call->Wait().text(), "RESOURCE_EXHAUSTED QUEUE_FULL");
        details = call->Wait().details;
        ++refused;
      }
    }
  }
  std::printf("flood of %d MiB: the server grew by %.1f MiB at most\n", kFlood,
              static_cast<double>(most) / (1 << 20));
  EXPECT_LT(most, int64_t{200} << 20);
  EXPECT_THAT(details, testing::HasSubstr("google.rpc.RetryInfo"));
  EXPECT_EQ(Scrape(server.http()).Get("attnd_rejected_total{reason=\"QUEUE_FULL\"}"), refused);
  ASSERT_TRUE(WaitQueued(wire, 0)) << "the flood was cancelled";
  EXPECT_FALSE(stall.done());
  stall.Cancel();
  stall.Wait();
  ASSERT_TRUE(WaitIdle(server));
  EXPECT_EQ(wire.Prefill(session, kSlowLayer, 0, SlowRows(1, 5)).size(), 80u);
}

TEST(LimitsTest, ManyIdleStreamsCostLittle) {
  ReadyServer server(TinyFlags());
  Wire control(server.grpc());
  const std::string session = control.Create();
  const int64_t before = server.RssBytes();
  std::vector<std::unique_ptr<Wire>> wires;
  std::vector<std::unique_ptr<StepsCall>> streams;
  for (int w = 0; w < 10; ++w) {
    wires.push_back(std::make_unique<Wire>(server.grpc()));
    for (int s = 0; s < 100; ++s) {
      streams.push_back(std::make_unique<StepsCall>(*wires.back()));
    }
  }
  int64_t position = 0;
  for (size_t i = 0; i < streams.size(); i += 50) {
    streams[i]->Write(StepOf(i, DecodeOf(kTinyLocal, {{session, position++}}, TinyRows(1, 1))));
    EXPECT_EQ(StatusText(streams[i]->Next().status()), "OK");
  }
  EXPECT_LT(server.RssBytes() - before, int64_t{100} << 20) << "100 KiB a stream";
  streams.clear();
  EXPECT_EQ(control.Length(session, kTinyLocal), position);
  server.Signal(SIGTERM);
  EXPECT_EQ(server.WaitExit(), 0);
}

}  // namespace
}  // namespace attnd
