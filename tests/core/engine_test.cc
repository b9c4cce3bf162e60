// The engine's rules on positions, rewinds, prefixes, order, batches and failures.
#include "core/engine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "core/error.h"
#include "tests/support/golden.h"
#include "tests/support/test_engine.h"

namespace attnd {
namespace {

constexpr int64_t kWindow = 8;
constexpr int64_t kD = 64;  // APEX-1 tiny
constexpr int64_t kLocal = 0, kGlobal = 1;

std::vector<float> Slice(const std::vector<float>& rows, int64_t begin, int64_t end) {
  return {rows.begin() + begin * kD, rows.begin() + end * kD};
}

class EngineTest : public testing::Test {
 protected:
  static TestEngineOptions Options() {
    TestEngineOptions options;
    options.engine.max_rewind = 4;
    options.engine.prefill_chunk_rows = 50;
    options.engine.max_batch_rows = 60;
    return options;
  }

  // The answers to rows [begin, end) of a sequence of its own, sent whole.
  std::vector<float> Expected(int64_t layer, const std::vector<float>& rows, int64_t begin,
                              int64_t end, int64_t prefix = 0) {
    const std::string id = engine_.Create(prefix);
    const auto step = engine_.Run(engine_.Prefill(id, layer, 0, rows));
    EXPECT_TRUE(step->Outcome().ok()) << step->Outcome();
    EXPECT_TRUE(engine_.engine().sessions().Close("", id).ok());
    return Slice(step->output, begin, end);
  }
  void ExpectClose(const std::vector<float>& out, const std::vector<float>& expected) {
    const Verdict verdict = Compare(out, expected, kGoldenF32);
    EXPECT_TRUE(verdict.passed) << verdict.text;
  }
  static void ExpectReason(const std::unique_ptr<Step>& step, Reason reason) {
    EXPECT_EQ(ReasonOf(step->Outcome()), reason) << step->Outcome();
  }
  std::unique_ptr<Step> RunPrefill(const std::string& id, int64_t layer, int64_t position,
                                   std::vector<float> rows, bool rewind = false) {
    auto step = engine_.Prefill(id, layer, position, std::move(rows));
    step->sequences[0].rewind = rewind;
    return engine_.Run(std::move(step));
  }
  int64_t Length(const std::string& id, int64_t layer) { return engine_.Find(id)->Length(layer); }
  int64_t UsedBytes() {
    const PoolStats stats = engine_.engine().stats().pool;
    return stats.used_bytes[0] + stats.used_bytes[1] + stats.used_bytes[2];
  }

  TestEngine engine_{TinyConfig(kWindow, 2), "random:7", Options()};
  const std::vector<float> rows_ = RandomRows(1, 700, kD);
};

TEST_F(EngineTest, AppendsAtTheLayersLengthOnly) {
  const std::string id = engine_.Create();
  auto step = RunPrefill(id, kLocal, 0, Slice(rows_, 0, 5));
  EXPECT_EQ(step->sequences[0].length, 5);
  EXPECT_EQ(step->output_position, 0);
  for (int64_t wrong : {0, 4, 6, 4000}) {
    step = RunPrefill(id, kLocal, wrong, Slice(rows_, 5, 6));
    ExpectReason(step, Reason::kPositionMismatch);
    EXPECT_NE(std::string(step->Outcome().message()).find("expected 5"), std::string::npos);
    EXPECT_EQ(step->sequences[0].length, 5);
  }
  EXPECT_TRUE(RunPrefill(id, kLocal, 5, Slice(rows_, 5, 6))->Outcome().ok());
  EXPECT_EQ(Length(id, kGlobal), 0) << "layers advance independently";
}

TEST_F(EngineTest, RefusesRowsPastTheLimits) {
  const std::string id = engine_.Create(0, 20);
  ExpectReason(RunPrefill(id, kGlobal, 0, Slice(rows_, 0, 21)), Reason::kPastMaxTokens);
  EXPECT_TRUE(RunPrefill(id, kGlobal, 0, Slice(rows_, 0, 20))->Outcome().ok());
  ExpectReason(RunPrefill(id, kGlobal, 20, Slice(rows_, 20, 21)), Reason::kPastMaxTokens);
  const std::string other = engine_.Create();
  ExpectReason(RunPrefill(other, kGlobal, 4096, Slice(rows_, 0, 1)), Reason::kPastMaxSeqLen);
  EXPECT_EQ(Length(other, kGlobal), 0);
}

TEST_F(EngineTest, GlobalLayersAreCutAnywhere) {
  const std::string id = engine_.Create();
  ASSERT_TRUE(RunPrefill(id, kGlobal, 0, Slice(rows_, 0, 200))->Outcome().ok());
  for (int64_t position : {190, 130, 128, 127, 64, 1}) {
    auto step = RunPrefill(id, kGlobal, position, Slice(rows_, position, position + 3), true);
    ASSERT_TRUE(step->Outcome().ok()) << step->Outcome();
    ExpectClose(step->output,
                Expected(kGlobal, Slice(rows_, 0, position + 3), position, position + 3));
    EXPECT_EQ(Length(id, kGlobal), position + 3);
  }
}

// A layer's last step can be repeated and gives the same bits, however long it was.
TEST_F(EngineTest, TheLastStepCanAlwaysBeRepeated) {
  for (int64_t layer : {kLocal, kGlobal}) {
    for (int64_t start : {0, 1, 63, 64, 70, 150}) {
      for (int64_t n : {1, 4, 5, 30, 300}) {
        SCOPED_TRACE(std::to_string(n) + " rows from " + std::to_string(start) + " on layer " +
                     std::to_string(layer));
        const std::string id = engine_.Create();
        if (start > 0) {
          ASSERT_TRUE(RunPrefill(id, layer, 0, Slice(rows_, 0, start))->Outcome().ok());
        }
        const auto once = RunPrefill(id, layer, start, Slice(rows_, start, start + n));
        ASSERT_TRUE(once->Outcome().ok());
        for (int repeat = 0; repeat < 2; ++repeat) {
          const auto again = RunPrefill(id, layer, start, Slice(rows_, start, start + n), true);
          ASSERT_TRUE(again->Outcome().ok()) << again->Outcome();
          EXPECT_EQ(again->output, once->output);
          EXPECT_EQ(again->sequences[0].length, start + n);
        }
        const auto next = RunPrefill(id, layer, start + n, Slice(rows_, start + n, start + n + 2));
        ASSERT_TRUE(next->Outcome().ok());
        ExpectClose(next->output,
                    Expected(layer, Slice(rows_, 0, start + n + 2), start + n, start + n + 2));
        ASSERT_TRUE(engine_.engine().sessions().Close("", id).ok());
        EXPECT_EQ(UsedBytes(), 0);
      }
    }
  }
}

// A row that sees only itself needs no keys of before: nothing is kept to repeat a step.
TEST(SmallWindowTest, TheLastStepIsRepeatedOrCut) {
  for (int64_t window : {1, 2, 64, 65}) {
    for (int64_t max_rewind : {0, 1, 64}) {
      TestEngineOptions options;
      options.engine.max_rewind = max_rewind;
      TestEngine engine(TinyConfig(window, 2), "random:7", options);
      for (int64_t start : {64, 128, 129}) {
        for (int64_t n : {1, 64, 100, 130, 300}) {
          SCOPED_TRACE("window " + std::to_string(window) + ", " + std::to_string(n) +
                       " rows from " + std::to_string(start));
          const std::vector<float> rows = RandomRows(1, start + n, kD);
          const std::string id = engine.Create();
          const auto prefill = [&](int64_t from, int64_t to, bool rewind) {
            auto step = engine.Prefill(id, kLocal, from, Slice(rows, from, to));
            step->sequences[0].rewind = rewind;
            return engine.Run(std::move(step));
          };
          ASSERT_TRUE(prefill(0, start, false)->Outcome().ok());
          const auto once = prefill(start, start + n, false);
          const auto again = prefill(start, start + n, true);
          ASSERT_TRUE(again->Outcome().ok()) << again->Outcome();
          EXPECT_EQ(again->output, once->output);
          const auto rewound = engine.Run(engine.Rewind(id, start));
          ASSERT_TRUE(rewound->Outcome().ok()) << rewound->Outcome();
          EXPECT_EQ(prefill(start, start + n, false)->output, once->output);
          ASSERT_TRUE(engine.engine().sessions().Close("", id).ok());
        }
      }
      EXPECT_EQ(engine.engine().stats().pool.used_bytes, PerKind{});
    }
  }
}

// As the wire contract says: p = 0, nothing dropped, p >= first + W, or the last step's start.
TEST_F(EngineTest, ALocalLayerRefusesCutsBelowItsFloor) {
  const std::string id = engine_.Create();
  ASSERT_TRUE(RunPrefill(id, kLocal, 0, Slice(rows_, 0, 12))->Outcome().ok());
  EXPECT_EQ(engine_.engine().sessions().Get("", id)->rewind_floor, 0) << "nothing is dropped yet";
  ASSERT_TRUE(RunPrefill(id, kLocal, 12, Slice(rows_, 12, 100))->Outcome().ok());
  ASSERT_TRUE(RunPrefill(id, kLocal, 100, Slice(rows_, 100, 101))->Outcome().ok());
  // It holds W + max_rewind = 12 tokens: from 89 on.
  EXPECT_EQ(engine_.engine().sessions().Get("", id)->rewind_floor, 89 + kWindow);
  ExpectReason(RunPrefill(id, kLocal, 96, Slice(rows_, 96, 97), true), Reason::kRewindTooFar);
  ExpectReason(RunPrefill(id, kLocal, 12, Slice(rows_, 12, 13), true), Reason::kRewindTooFar);
  auto step = RunPrefill(id, kLocal, 97, Slice(rows_, 97, 99), true);
  ASSERT_TRUE(step->Outcome().ok()) << step->Outcome();
  ExpectClose(step->output, Expected(kLocal, Slice(rows_, 0, 99), 97, 99));
  // The floor does not sink with the cut: `first` is still 89.
  ExpectReason(RunPrefill(id, kLocal, 96, Slice(rows_, 96, 97), true), Reason::kRewindTooFar);
  EXPECT_TRUE(RunPrefill(id, kLocal, 0, Slice(rows_, 0, 3), true)->Outcome().ok());
  EXPECT_EQ(Length(id, kLocal), 3);
}

TEST_F(EngineTest, ExpectedLengthGuardsALateRetry) {
  const std::string id = engine_.Create();
  ASSERT_TRUE(RunPrefill(id, kGlobal, 0, Slice(rows_, 0, 10))->Outcome().ok());
  const auto retry = [&](int64_t position, int64_t expected_length) {
    auto step = engine_.Prefill(id, kGlobal, position, Slice(rows_, position, 10));
    step->sequences[0].rewind = true;
    step->sequences[0].expected_length = expected_length;
    return engine_.Run(std::move(step));
  };
  ASSERT_TRUE(RunPrefill(id, kGlobal, 10, Slice(rows_, 10, 12))->Outcome().ok());
  ExpectReason(retry(5, 10), Reason::kPositionMismatch);
  EXPECT_EQ(Length(id, kGlobal), 12);
  EXPECT_TRUE(retry(5, 12)->Outcome().ok());
}

TEST_F(EngineTest, RewindCutsEveryLongerLayerOrNone) {
  const std::string id = engine_.Create();
  ASSERT_TRUE(RunPrefill(id, kLocal, 0, Slice(rows_, 0, 101))->Outcome().ok());
  ASSERT_TRUE(RunPrefill(id, kLocal, 101, Slice(rows_, 101, 102))->Outcome().ok());
  ASSERT_TRUE(RunPrefill(id, kGlobal, 0, Slice(rows_, 0, 99))->Outcome().ok());
  auto step = engine_.Run(engine_.Rewind(id, 50));
  ExpectReason(step, Reason::kRewindTooFar);
  EXPECT_NE(std::string(step->Outcome().message()).find("layer 0"), std::string::npos);
  EXPECT_EQ(Length(id, kGlobal), 99) << "nothing was changed";
  step = engine_.Run(engine_.Rewind(id, 100));
  ASSERT_TRUE(step->Outcome().ok()) << step->Outcome();
  EXPECT_EQ(Length(id, kLocal), 100);
  EXPECT_EQ(Length(id, kGlobal), 99);
  const auto next = RunPrefill(id, kLocal, 100, Slice(rows_, 100, 101));
  ExpectClose(next->output, Expected(kLocal, Slice(rows_, 0, 101), 100, 101));
  ASSERT_TRUE(engine_.Run(engine_.Rewind(id, 0))->Outcome().ok());
  EXPECT_EQ(UsedBytes(), 0);
}

TEST_F(EngineTest, ThePrefixIsAnsweredByItsLastRowAndRepeatable) {
  for (int64_t layer : {kLocal, kGlobal}) {
    for (int64_t prefix : {5, 70, 130}) {
      for (int64_t beyond : {0, 3, 200}) {
        SCOPED_TRACE("prefix " + std::to_string(prefix) + " and " + std::to_string(beyond) +
                     " rows, layer " + std::to_string(layer));
        const int64_t end = prefix + beyond;
        const std::vector<float> expected = Expected(layer, Slice(rows_, 0, end), 0, end, prefix);
        const std::string id = engine_.Create(prefix);
        auto held = RunPrefill(id, layer, 0, Slice(rows_, 0, 3));
        EXPECT_TRUE(held->output.empty());
        EXPECT_EQ(held->output_position, 0);
        // An unanswered prefix can be cut anywhere.
        ASSERT_TRUE(RunPrefill(id, layer, 2, Slice(rows_, 2, 4), true)->Outcome().ok());
        ExpectReason(engine_.Run(engine_.Decode({id}, layer, {4}, Slice(rows_, 4, 5))),
                     Reason::kPrefixIncomplete);
        const auto once = RunPrefill(id, layer, 4, Slice(rows_, 4, end));
        ASSERT_TRUE(once->Outcome().ok()) << once->Outcome();
        EXPECT_EQ(once->output_position, 0);
        ExpectClose(once->output, expected);
        ExpectReason(RunPrefill(id, layer, 2, Slice(rows_, 2, 3), true), Reason::kPrefixAnswered);
        const auto again = RunPrefill(id, layer, 4, Slice(rows_, 4, end), true);
        ASSERT_TRUE(again->Outcome().ok()) << again->Outcome();
        EXPECT_EQ(again->output, once->output);
        const auto next = RunPrefill(id, layer, end, Slice(rows_, end, end + 5));
        ExpectClose(next->output, Expected(layer, Slice(rows_, 0, end + 5), end, end + 5, prefix));
        ExpectReason(RunPrefill(id, layer, 4, Slice(rows_, 4, end), true), Reason::kPrefixAnswered);
        EXPECT_EQ(engine_.Find(id)->Cache(layer).held_rows, 0) << "the next step let go of them";
        ASSERT_TRUE(engine_.engine().sessions().Close("", id).ok());
      }
    }
  }
  EXPECT_EQ(UsedBytes(), 0);
}

TEST_F(EngineTest, TheCompletingCallsOutputRowsGovern) {
  for (OutputRows rows : {OutputRows::kAll, OutputRows::kLast, OutputRows::kNone}) {
    const std::string id = engine_.Create(20);
    auto first = engine_.Prefill(id, kLocal, 0, Slice(rows_, 0, 10));
    first->output_rows = OutputRows::kLast;
    EXPECT_TRUE(engine_.Run(std::move(first))->output.empty());
    auto last = engine_.Prefill(id, kLocal, 10, Slice(rows_, 10, 20));
    last->output_rows = rows;
    last = engine_.Run(std::move(last));
    const int64_t from = rows == OutputRows::kAll ? 0 : rows == OutputRows::kLast ? 19 : 10;
    EXPECT_EQ(last->output_position, from);
    const int64_t to = rows == OutputRows::kNone ? 10 : 20;
    ASSERT_EQ(static_cast<int64_t>(last->output.size()), (to - from) * kD);
    if (from < to) {
      ExpectClose(last->output, Expected(kLocal, Slice(rows_, 0, 20), from, to, 20));
    }
  }
}

TEST_F(EngineTest, OneSequencesFailureLeavesTheOthers) {
  const std::string a = engine_.Create(), b = engine_.Create(), c = engine_.Create();
  auto step = engine_.Run(engine_.Decode({a, b, c}, kLocal, {0, 5, 0}, Slice(rows_, 0, 3)));
  EXPECT_TRUE(step->Outcome().ok());
  EXPECT_TRUE(step->sequences[0].status.ok());
  EXPECT_EQ(ReasonOf(step->sequences[1].status), Reason::kPositionMismatch);
  EXPECT_EQ(step->sequences[1].length, 0);
  EXPECT_TRUE(step->sequences[2].status.ok());
  EXPECT_EQ(Slice(step->output, 1, 2), std::vector<float>(kD)) << "a failed sequence's rows are 0";
  EXPECT_NE(Slice(step->output, 2, 3), std::vector<float>(kD));
  step = engine_.Run(engine_.Decode({a, b}, kLocal, {7, 5}, Slice(rows_, 0, 2)));
  ExpectReason(step, Reason::kPositionMismatch);  // all failed alike: the call fails
}

// Bit for bit: what a session gets does not depend on who shares its batch.
TEST_F(EngineTest, TogetherAndAloneTheSameBits) {
  for (int64_t layer : {kLocal, kGlobal}) {
    const std::vector<int64_t> lengths = {0, 1, 40, 64, 300, 511};
    std::vector<std::string> alone, together;
    std::vector<float> hidden, expected;
    for (int64_t length : lengths) {
      for (auto* ids : {&alone, &together}) {
        ids->push_back(engine_.Create());
        if (length > 0) {
          ASSERT_TRUE(RunPrefill(ids->back(), layer, 0, Slice(rows_, 0, length))->Outcome().ok());
        }
      }
      const auto row = Slice(rows_, length, length + 1);
      hidden.insert(hidden.end(), row.begin(), row.end());
      const auto step = engine_.Run(engine_.Decode({alone.back()}, layer, {length}, row));
      ASSERT_TRUE(step->Outcome().ok());
      expected.insert(expected.end(), step->output.begin(), step->output.end());
    }
    const auto step = engine_.Run(engine_.Decode(together, layer, lengths, hidden));
    EXPECT_EQ(step->timing.batch_rows, static_cast<int64_t>(lengths.size()));
    EXPECT_EQ(std::memcmp(step->output.data(), expected.data(), expected.size() * 4), 0);
  }
}

TEST_F(EngineTest, CancelledInTheMiddleTheLayerIsAsBefore) {
  for (int64_t layer : {kLocal, kGlobal}) {
    const std::string id = engine_.Create();
    const auto before = RunPrefill(id, layer, 0, Slice(rows_, 0, 90));
    const int64_t used = UsedBytes();
    auto step = engine_.Prefill(id, layer, 80, Slice(rows_, 0, 400));
    step->sequences[0].rewind = layer == kGlobal;
    step->sequences[0].position = layer == kGlobal ? 80 : 90;
    const auto cancelled = step->cancelled;
    engine_.Enqueue(std::move(step));
    ASSERT_TRUE(engine_.engine().RunOnce());  // one chunk of eight
    EXPECT_EQ(Length(id, layer), 90) << "others see the old state meanwhile";
    cancelled->store(true);
    engine_.engine().Poke();
    engine_.RunAll();
    ASSERT_EQ(engine_.finished().size(), 1U);
    ExpectReason(engine_.finished()[0], Reason::kStepCancelled);
    EXPECT_EQ(engine_.finished()[0]->sequences[0].length, 90);
    engine_.finished().clear();
    EXPECT_EQ(UsedBytes(), used);
    const auto next = RunPrefill(id, layer, 90, Slice(rows_, 90, 95));
    ExpectClose(next->output, Expected(layer, Slice(rows_, 0, 95), 90, 95));
    // The step before the cancelled one was the last to succeed; it could still be repeated.
    ASSERT_TRUE(engine_.engine().sessions().Close("", id).ok());
  }
}

TEST_F(EngineTest, WhatHasExpiredIsNotComputed) {
  const std::string id = engine_.Create();
  auto step = engine_.Prefill(id, kLocal, 0, Slice(rows_, 0, 3));
  step->deadline = engine_.clock().Now() + 10;
  engine_.Enqueue(std::move(step));
  engine_.clock().Advance(10);
  engine_.RunAll();
  ExpectReason(engine_.finished()[0], Reason::kStepTimeout);
  EXPECT_TRUE(engine_.batches().empty());
  EXPECT_EQ(Length(id, kLocal), 0);
}

TEST_F(EngineTest, RefusesValuesThatTheCacheCannotHold) {
  TestEngineOptions options = Options();
  options.engine.cache_dtype = DType::kF16;
  TestEngine half(TinyConfig(kWindow, 2), "random:7", options);
  std::vector<float> big = RandomRows(3, 2, kD);
  for (int64_t i = kD; i < 2 * kD; ++i) {
    big[static_cast<size_t>(i)] *= 1e6F;
  }
  for (int64_t layer : {kLocal, kGlobal}) {
    const std::string a = half.Create(), b = half.Create();
    const auto step = half.Run(half.Decode({a, b}, layer, {0, 0}, big));
    EXPECT_TRUE(step->sequences[0].status.ok());
    EXPECT_EQ(ReasonOf(step->sequences[1].status), Reason::kNotFinite);
    EXPECT_EQ(half.Find(b)->Length(layer), 0);
    EXPECT_TRUE(half.Run(half.Decode({b}, layer, {0}, RandomRows(4, 1, kD)))->Outcome().ok());
  }
}

}  // namespace
}  // namespace attnd
