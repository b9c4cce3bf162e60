// Who goes first: within a session, between sessions, and between connections.
#include "tests/integration/long_prefill.h"
#include "tests/integration/tiny_server.h"

namespace attnd {
namespace {

class OrderTest : public testing::Test {
 protected:
  explicit OrderTest(const std::vector<std::string>& more = {})
      : server_([&] {
          std::vector<std::string> flags = SlowModelFlags(dir_);
          flags.insert(flags.end(), more.begin(), more.end());
          return flags;
        }()),
        wire_(server_.grpc()) {}

  TempDir dir_;
  ReadyServer server_;
  Wire wire_;
};

TEST_F(OrderTest, StepsOfASessionRunInTheOrderSent) {
  const std::string session = wire_.Create();
  StepsCall steps(wire_);
  // Each is right only after the one before it; two wait for every answer that is read.
  constexpr int kSteps = 60;
  int64_t position = 0;
  uint64_t sent = 0;
  uint64_t read = 0;
  std::vector<float> streamed;
  while (read < kSteps) {
    while (sent < kSteps && sent < read + 20) {
      if (sent % 7 == 3) {
        ASSERT_TRUE(
            steps.Write(StepOf(sent, PrefillOf(session, kSlowLayer, position, SlowRows(sent, 5)))));
        position += 5;
      } else {
        ASSERT_TRUE(steps.Write(
            StepOf(sent, DecodeOf(kSlowLayer, {{session, position}}, SlowRows(sent, 1)))));
        position += 1;
      }
      ++sent;
    }
    const v1::StepResponse response = steps.Next();
    ASSERT_EQ(StatusText(response.status()), "OK") << response.status().message();
    ASSERT_EQ(response.step_id(), read) << "answers of one session keep its order";
    ++read;
  }
  EXPECT_EQ(wire_.Length(session, kSlowLayer), position);
  steps.HalfClose();
  EXPECT_TRUE(steps.Finish().ok());
}

TEST_F(OrderTest, AnswersOfOtherSessionsOvertake) {
  const std::string slow = wire_.Create();
  const std::string quick = wire_.Create();
  StepsCall steps(wire_);
  ASSERT_TRUE(steps.Write(StepOf(1, PrefillOf(slow, kSlowLayer, 0, SlowRows(1, 30'000)))));
  for (int64_t i = 0; i < 10; ++i) {
    ASSERT_TRUE(steps.Write(StepOf(2 + i, DecodeOf(kSlowLayer, {{quick, i}}, SlowRows(i, 1)))));
    const v1::StepResponse response = steps.Next();
    EXPECT_EQ(response.step_id(), 2u + i) << "the prefill is still running";
    EXPECT_EQ(StatusText(response.status()), "OK");
  }
  EXPECT_EQ(wire_.Length(slow, kSlowLayer), 0) << "not half a step";
  ASSERT_TRUE(steps.Write(CancelOf(1)));
  EXPECT_EQ(StatusText(steps.Next().status()), "CANCELLED STEP_CANCELLED");
}

TEST_F(OrderTest, DecodesRunBetweenTheChunksOfAPrefill) {
  const std::string slow = wire_.Create();
  const std::string quick = wire_.Create();
  LongPrefill prefill(wire_, slow);
  ASSERT_TRUE(WaitRunning(wire_));
  Wire other(server_.grpc());
  for (uint32_t layer : {0u, 1u}) {
    for (int64_t i = 0; i < 20; ++i) {
      EXPECT_EQ(other.Decode(layer, {{quick, i}}, SlowRows(i, 1)).size(),
                static_cast<size_t>(kSlowWidth));
    }
  }
  EXPECT_FALSE(prefill.done());
  prefill.Cancel();
  EXPECT_EQ(prefill.Wait().text(), "CANCELLED");
}

TEST_F(OrderTest, RewindAndCloseWaitOrFailAsTheContractSays) {
  const std::string session = wire_.Create();
  LongPrefill running(wire_, session);
  ASSERT_TRUE(WaitRunning(wire_));
  // A queued step of the session, which Close fails; the running one finishes.
  LongPrefill queued(wire_, PrefillOf(session, kSlowLayer, 30'000, SlowRows(2, 10)));
  ASSERT_TRUE(WaitQueued(wire_, 1));
  wire_.Close(session);
  EXPECT_EQ(queued.Wait().text(), "NOT_FOUND SESSION_CLOSED");
  EXPECT_FALSE(running.done());
  running.Cancel();
  running.Wait();
  ASSERT_TRUE(WaitIdle(server_));
  EXPECT_EQ(wire_.Stats().kv_cache_used_bytes(), 0);
}

TEST_F(OrderTest, ARewindWaitsForTheStepsBeforeIt) {
  const std::string session = wire_.Create();
  LongPrefill first(wire_, session, 3'000);
  ASSERT_TRUE(WaitRunning(wire_));
  v1::Session info;
  const Outcome outcome = wire_.Rewind(session, 1'000, &info);
  ASSERT_TRUE(outcome.ok()) << outcome;
  EXPECT_EQ(info.layer_lengths(kSlowLayer), 1'000);
  EXPECT_TRUE(first.Wait().ok()) << first.Wait();
  EXPECT_EQ(first.response().length(), 3'000);
}

// Batches of one flood step each.
class FloodTest : public OrderTest {
 protected:
  FloodTest() : OrderTest({"--max_batch_rows=512", "--prefill_chunk_rows=512"}) {}
};

TEST_F(FloodTest, AFloodDelaysAnotherConnectionByAboutABatch) {
  constexpr int kFlood = 120;
  std::vector<std::string> flooding;
  for (int i = 0; i < kFlood; ++i) {
    flooding.push_back(wire_.Create());
  }
  const std::string patient = wire_.Create();
  std::vector<std::unique_ptr<LongPrefill>> flood;
  for (const std::string& session : flooding) {
    flood.push_back(std::make_unique<LongPrefill>(wire_, session, 512));
  }
  const auto done = [&] {
    return std::count_if(flood.begin(), flood.end(), [](const auto& f) { return f->done(); });
  };
  ASSERT_TRUE(WaitUntil([&] { return done() >= 3; }));
  Wire other(server_.grpc());
  other.Stats();  // connects
  const int64_t before = done();
  other.Decode(kSlowLayer, {{patient, 0}}, SlowRows(1, 1));
  const int64_t after = done();
  ASSERT_LT(after, kFlood) << "the flood was over before the other connection's step came";
  // The running batch and the next may end first; more, where the answer waits for this thread.
  EXPECT_LE(after - before, 10) << "of " << kFlood << " steps that were in front";
  flood.clear();
}

}  // namespace
}  // namespace attnd
