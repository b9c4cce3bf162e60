// Order within a session, turns between connections, and what ends a step.
#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/support/test_engine.h"

namespace attnd {
namespace {

constexpr int64_t kD = 64;

class SchedulingTest : public testing::Test {
 protected:
  static TestEngineOptions Options() {
    TestEngineOptions options;
    options.engine.prefill_chunk_rows = 16;
    options.engine.max_batch_rows = 32;
    options.engine.max_queue = 200;
    options.engine.idle_ttl_ns = 1000;
    return options;
  }
  std::unique_ptr<Step> Row(const std::string& id, int64_t layer, int64_t position,
                            uint64_t connection = 0) {
    auto step = engine_.Decode({id}, layer, {position}, RandomRows(1, 1, kD));
    step->connection = connection;
    return step;
  }
  std::vector<absl::Status> Outcomes() {
    std::vector<absl::Status> outcomes;
    for (const auto& step : engine_.finished()) {
      outcomes.push_back(step->Outcome());
    }
    return outcomes;
  }

  TestEngine engine_{TinyConfig(8, 3, 6), "random:7", Options()};
};

TEST_F(SchedulingTest, ASessionsStepsRunInTheOrderOfAcceptance) {
  const std::string id = engine_.Create();
  // Each is right only if those before it have run: positions are checked at its turn.
  for (int64_t i = 0; i < 5; ++i) {
    engine_.Enqueue(Row(id, 0, i, static_cast<uint64_t>(i % 2)));
    engine_.Enqueue(Row(id, 1, i, static_cast<uint64_t>(i % 3)));
  }
  engine_.Enqueue(engine_.Rewind(id, 2));
  engine_.Enqueue(Row(id, 0, 2));
  engine_.RunAll();
  for (const absl::Status& status : Outcomes()) {
    EXPECT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(engine_.Find(id)->Length(0), 3);
  EXPECT_EQ(engine_.Find(id)->Length(1), 2);
}

TEST_F(SchedulingTest, StepsOfALayerShareABatch) {
  for (int i = 0; i < 10; ++i) {
    engine_.Enqueue(Row(engine_.Create(), 2, 0, static_cast<uint64_t>(i)));
  }
  engine_.RunAll();
  ASSERT_EQ(engine_.batches().size(), 1U);
  EXPECT_EQ(engine_.batches()[0].decode_rows, 10);
  EXPECT_EQ(engine_.batches()[0].layer, 2);
  EXPECT_EQ(engine_.batches()[0].kind, LayerKind::kGlobal);
}

TEST_F(SchedulingTest, ALargeDecodeIsSplitIntoBatches) {
  std::vector<std::string> ids;
  for (int i = 0; i < 70; ++i) {
    ids.push_back(engine_.Create());
  }
  const auto step =
      engine_.Run(engine_.Decode(ids, 0, std::vector<int64_t>(70, 0), RandomRows(2, 70, kD)));
  EXPECT_TRUE(step->Outcome().ok());
  EXPECT_EQ(engine_.batches().size(), 3U);
}

TEST_F(SchedulingTest, AFloodDelaysAnotherClientByAboutABatch) {
  for (int i = 0; i < 100; ++i) {
    engine_.Enqueue(Row(engine_.Create(), i % 5, 0, /*connection=*/1));
  }
  ASSERT_TRUE(engine_.engine().RunOnce());
  engine_.Enqueue(Row(engine_.Create(), 5, 0, /*connection=*/2));
  ASSERT_TRUE(engine_.engine().RunOnce());
  ASSERT_TRUE(engine_.engine().RunOnce());
  bool answered = false;
  for (const auto& step : engine_.finished()) {
    answered |= step->connection == 2;
  }
  EXPECT_TRUE(answered) << "97 steps of the flood were older";
}

TEST_F(SchedulingTest, DecodesRunBetweenTheChunksOfAPrefill) {
  const std::string longer = engine_.Create();
  auto prefill = engine_.Prefill(longer, 0, 0, RandomRows(3, 160, kD));
  prefill->connection = 1;
  engine_.Enqueue(std::move(prefill));
  ASSERT_TRUE(engine_.engine().RunOnce());
  engine_.Enqueue(Row(engine_.Create(), 3, 0, /*connection=*/2));
  ASSERT_TRUE(engine_.engine().RunOnce());
  ASSERT_EQ(engine_.finished().size(), 1U) << "the decode did not wait for nine more chunks";
  EXPECT_EQ(engine_.finished()[0]->kind, StepKind::kDecode);
  engine_.RunAll();
  EXPECT_TRUE(Outcomes()[1].ok());
}

TEST_F(SchedulingTest, AFullQueueRefusesAndLeavesTheStepWithItsCaller) {
  const std::string id = engine_.Create();
  for (int64_t i = 0; i < 200; ++i) {
    engine_.Enqueue(Row(id, 0, i));
  }
  auto step = Row(id, 0, 200);
  EXPECT_EQ(ReasonOf(engine_.engine().CheckRoom()), Reason::kQueueFull);
  const absl::Status status = engine_.engine().Enqueue(&step);
  EXPECT_EQ(ReasonOf(status), Reason::kQueueFull);
  EXPECT_TRUE(RetryAfterMs(status).has_value());
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(engine_.engine().stats().queued_steps, 200);
  engine_.RunAll();
  EXPECT_EQ(engine_.engine().stats().queued_steps, 0);
  EXPECT_TRUE(engine_.engine().CheckRoom().ok());
}

TEST_F(SchedulingTest, CloseFailsWhatIsQueuedAndLetsTheRunningFinish) {
  const std::string id = engine_.Create();
  engine_.Enqueue(engine_.Prefill(id, 0, 0, RandomRows(3, 40, kD)));
  engine_.Enqueue(Row(id, 0, 40));
  ASSERT_TRUE(engine_.engine().RunOnce());
  ASSERT_TRUE(engine_.engine().sessions().Close("", id).ok());
  engine_.RunAll();
  const std::vector<absl::Status> outcomes = Outcomes();
  ASSERT_EQ(outcomes.size(), 2U);
  EXPECT_EQ(ReasonOf(outcomes[0]), Reason::kSessionClosed) << outcomes[0];
  EXPECT_TRUE(outcomes[1].ok()) << outcomes[1];
  engine_.finished().clear();
  const PerKind used = engine_.engine().stats().pool.used_bytes;
  EXPECT_EQ(used, PerKind{});
}

TEST_F(SchedulingTest, AnIdleSessionExpiresAndAQueuedStepHoldsIt) {
  const std::string idle = engine_.Create(), busy = engine_.Create();
  ASSERT_TRUE(engine_.Run(Row(idle, 0, 0))->Outcome().ok());
  engine_.Enqueue(engine_.Prefill(busy, 0, 0, RandomRows(3, 40, kD)));
  ASSERT_TRUE(engine_.engine().RunOnce());
  engine_.clock().Advance(2000);
  ASSERT_TRUE(engine_.engine().RunOnce());
  EXPECT_EQ(ReasonOf(engine_.engine().sessions().Get("", idle).status()), Reason::kSessionExpired);
  EXPECT_TRUE(engine_.engine().sessions().Get("", busy).ok());
  engine_.RunAll();
  EXPECT_TRUE(Outcomes().back().ok());
  EXPECT_EQ(engine_.engine().stats().store.expired, 1);
}

TEST_F(SchedulingTest, AStoppedEngineAnswersEverything) {
  const std::string id = engine_.Create();
  engine_.Enqueue(engine_.Prefill(id, 0, 0, RandomRows(3, 40, kD)));
  engine_.Enqueue(Row(id, 0, 40));
  ASSERT_TRUE(engine_.engine().RunOnce());
  engine_.engine().Stop();
  engine_.RunAll();
  ASSERT_EQ(engine_.finished().size(), 2U);
  for (const absl::Status& status : Outcomes()) {
    EXPECT_EQ(ReasonOf(status), Reason::kDraining);
  }
  auto late = Row(id, 0, 0);
  EXPECT_EQ(ReasonOf(engine_.engine().Enqueue(&late)), Reason::kDraining);
}

TEST_F(SchedulingTest, ADecodeOfWhichNoPartBeganIsShapedAsItsRows) {
  const std::string id = engine_.Create();
  // Before the queue: one part's values are not finite, the other's session is unknown.
  auto never = engine_.Decode({id, id}, 0, {0, 1}, RandomRows(1, 2, kD));
  never->sequences[0].status = MakeError(Reason::kNotFinite, "a test's");
  never->sequences[1].status = MakeError(Reason::kSessionUnknown, "a test's");
  EXPECT_EQ(engine_.Run(std::move(never))->output, std::vector<float>(2 * kD, 0.0F));
  // In the queue: its session is closed, beside a part that failed before.
  auto queued = engine_.Decode({id, id}, 0, {0, 1}, RandomRows(1, 2, kD));
  queued->sequences[1].status = MakeError(Reason::kSessionUnknown, "a test's");
  engine_.Enqueue(std::move(queued));
  ASSERT_TRUE(engine_.engine().sessions().Close("", id).ok());
  engine_.RunAll();
  ASSERT_EQ(engine_.finished().size(), 1U);
  EXPECT_TRUE(engine_.finished()[0]->Outcome().ok()) << "the reasons differ";
  EXPECT_EQ(engine_.finished()[0]->output, std::vector<float>(2 * kD, 0.0F));
}

TEST_F(SchedulingTest, ChunksOfASequenceThatFailsLaterAreNotAnswered) {
  const std::string one = engine_.Create(), many = engine_.Create();
  auto step = engine_.Decode({one, many}, 0, {0, 0}, RandomRows(1, 41, kD));
  step->sequences[1].rows = 40;
  const auto cancelled = step->cancelled;
  engine_.Enqueue(std::move(step));
  ASSERT_TRUE(engine_.engine().RunOnce());
  cancelled->store(true);
  engine_.engine().Poke();
  engine_.RunAll();
  ASSERT_EQ(engine_.finished().size(), 1U);
  const Step& ended = *engine_.finished()[0];
  EXPECT_TRUE(ended.sequences[0].status.ok());
  EXPECT_EQ(ReasonOf(ended.sequences[1].status), Reason::kStepCancelled);
  const auto second = ended.output.begin() + kD;
  EXPECT_NE(std::vector<float>(ended.output.begin(), second), std::vector<float>(kD, 0.0F));
  EXPECT_EQ(std::vector<float>(second, ended.output.end()), std::vector<float>(40 * kD, 0.0F));
}

TEST_F(SchedulingTest, ABatchThatThrowsFailsAloneAndItsSessionGoesOn) {
  const std::string id = engine_.Create();
  engine_.ThrowInNextBatch();
  const auto prefill = engine_.Run(engine_.Prefill(id, 0, 0, RandomRows(3, 40, kD)));
  EXPECT_EQ(ReasonOf(prefill->Outcome()), Reason::kInternal) << prefill->Outcome();
  EXPECT_EQ(engine_.engine().stats().queued_steps, 0);
  EXPECT_TRUE(engine_.Run(Row(id, 0, 0))->Outcome().ok());
}

}  // namespace
}  // namespace attnd
