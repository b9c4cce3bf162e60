// Deadlines and cancellation: what has expired is not computed, what is cut short leaves the
// layer as it was, and the next correct call works.
#include "tests/integration/long_prefill.h"
#include "tests/integration/metrics_text.h"
#include "tests/integration/tiny_server.h"

namespace attnd {
namespace {

class CancelledStepsTest : public testing::Test {
 protected:
  // Decodes by one row and checks the length before.
  void ExpectUsable(const std::string& session, int64_t length) {
    ASSERT_TRUE(WaitIdle(server_));
    EXPECT_EQ(wire_.Length(session, kSlowLayer), length);
    EXPECT_EQ(wire_.Decode(kSlowLayer, {{session, length}}, SlowRows(5, 1)).size(),
              static_cast<size_t>(kSlowWidth));
  }

  double Computed() {
    return Scrape(server_.http()).Get("attnd_tokens_total{kind=\"global\",phase=\"prefill\"}");
  }

  TempDir dir_;
  ReadyServer server_{SlowModelFlags(dir_)};
  Wire wire_{server_.grpc()};
};

TEST_F(CancelledStepsTest, ADeadlineThatHasPassedComputesNothing) {
  const std::string session = wire_.Create();
  v1::PrefillResponse response;
  for (double seconds : {-1.0, -2e-3}) {
    const Outcome outcome = wire_.Prefill(PrefillOf(session, kSlowLayer, 0, SlowRows(1, 10)),
                                          &response, Seconds(seconds));
    EXPECT_EQ(outcome.code, grpc::StatusCode::DEADLINE_EXCEEDED) << outcome;
  }
  ExpectUsable(session, 0);
  EXPECT_EQ(Computed(), 0);
}

TEST_F(CancelledStepsTest, ADeadlineThatPassesInTheQueueComputesNothing) {
  const std::string busy = wire_.Create();
  LongPrefill prefill(wire_, busy);
  ASSERT_TRUE(WaitRunning(wire_));
  v1::PrefillResponse response;
  const Outcome outcome =
      wire_.Prefill(PrefillOf(busy, kSlowLayer, 30'000, SlowRows(1, 10)), &response, Seconds(0.2));
  EXPECT_EQ(outcome.code, grpc::StatusCode::DEADLINE_EXCEEDED) << outcome;
  ASSERT_TRUE(WaitQueued(wire_, 0)) << "it does not stay in the queue";
  EXPECT_FALSE(prefill.done());
  prefill.Cancel();
  EXPECT_EQ(prefill.Wait().text(), "CANCELLED");
  ExpectUsable(busy, 0);
}

TEST_F(CancelledStepsTest, ADeadlineInTheMiddleUndoesTheStep) {
  const std::string session = wire_.Create();
  wire_.Prefill(session, kSlowLayer, 0, SlowRows(2, 100));
  v1::Session before, after;
  wire_.Get(session, &before);
  v1::PrefillResponse response;
  const Outcome outcome = wire_.Prefill(PrefillOf(session, kSlowLayer, 100, SlowRows(1, 30'000)),
                                        &response, Seconds(0.5));
  EXPECT_EQ(outcome.code, grpc::StatusCode::DEADLINE_EXCEEDED) << outcome;
  ASSERT_TRUE(WaitIdle(server_));
  EXPECT_GT(Computed(), 100) << "it had begun";
  EXPECT_LT(Computed(), 30'100) << "and did not go on to its end";
  wire_.Get(session, &after);
  EXPECT_EQ(after.cache_bytes(), before.cache_bytes());
  ExpectUsable(session, 100);
}

TEST_F(CancelledStepsTest, ACancelInTheMiddleUndoesTheStep) {
  const std::string session = wire_.Create();
  const std::string twin = wire_.Create();
  wire_.Prefill(session, kSlowLayer, 0, SlowRows(2, 100));
  wire_.Prefill(twin, kSlowLayer, 0, SlowRows(2, 100));
  {
    LongPrefill prefill(wire_, PrefillOf(session, kSlowLayer, 100, SlowRows(1, 30'000)));
    ASSERT_TRUE(WaitRunning(wire_));
    EXPECT_EQ(wire_.Length(session, kSlowLayer), 100) << "the old state meanwhile";
    prefill.Cancel();
    EXPECT_EQ(prefill.Wait().text(), "CANCELLED");
  }
  ASSERT_TRUE(WaitIdle(server_));
  EXPECT_EQ(wire_.Length(session, kSlowLayer), 100);
  EXPECT_EQ(wire_.Prefill(session, kSlowLayer, 100, SlowRows(3, 50)),
            wire_.Prefill(twin, kSlowLayer, 100, SlowRows(3, 50)));
}

TEST_F(CancelledStepsTest, ACancelInTheQueueComputesNothing) {
  const std::string busy = wire_.Create();
  LongPrefill prefill(wire_, busy);
  ASSERT_TRUE(WaitRunning(wire_));
  LongPrefill queued(wire_, PrefillOf(busy, kSlowLayer, 30'000, SlowRows(1, 10)));
  ASSERT_TRUE(WaitQueued(wire_, 1));
  queued.Cancel();
  EXPECT_EQ(queued.Wait().text(), "CANCELLED");
  ASSERT_TRUE(WaitQueued(wire_, 0));
  EXPECT_FALSE(prefill.done());
}

TEST_F(CancelledStepsTest, ACancelledRewindingStepKeepsWhatItWouldHaveCut) {
  const std::string session = wire_.Create();
  const std::string twin = wire_.Create();
  for (const std::string& s : {session, twin}) {
    wire_.Prefill(s, kSlowLayer, 0, SlowRows(2, 300));
  }
  v1::PrefillRequest request = PrefillOf(session, kSlowLayer, 50, SlowRows(1, 30'000));
  request.set_rewind(true);
  {
    LongPrefill prefill(wire_, request);
    ASSERT_TRUE(WaitRunning(wire_));
    prefill.Cancel();
    prefill.Wait();
  }
  ASSERT_TRUE(WaitIdle(server_));
  EXPECT_EQ(wire_.Length(session, kSlowLayer), 300);
  EXPECT_EQ(wire_.Decode(kSlowLayer, {{session, 300}}, SlowRows(3, 1)),
            wire_.Decode(kSlowLayer, {{twin, 300}}, SlowRows(3, 1)));
}

}  // namespace
}  // namespace attnd
