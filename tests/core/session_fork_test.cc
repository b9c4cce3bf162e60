// Forks and moves with real attention: what continues, continues bit for bit, and nobody changes
// what another holds.
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/session_cut.h"
#include "tests/support/test_engine.h"

namespace attnd {
namespace {

constexpr int64_t kD = 64;

struct Case {
  DType cache_dtype = DType::kF32;
  int64_t prefix = 0;
};

class SessionForkTest : public testing::TestWithParam<Case> {
 protected:
  static TestEngineOptions Options() {
    TestEngineOptions options;
    options.engine.cache_dtype = GetParam().cache_dtype;
    options.engine.max_rewind = 10;
    options.engine.prefill_chunk_rows = 50;
    options.engine.kv_cache_bytes = int64_t{16} << 20;
    return options;
  }
  static ModelConfig Config() { return TinyConfig(70, 2); }

  static void Fill(TestEngine& engine, const std::string& id, int64_t rows) {
    for (int64_t layer = 0; layer < 2; ++layer) {
      const auto step = engine.Run(engine.Prefill(id, layer, 0, RandomRows(layer, rows, kD)));
      ASSERT_TRUE(step->Outcome().ok()) << step->Outcome();
    }
  }
  // A decode of row `position` on each layer, its values a function of `seed`.
  static std::vector<float> Decode(TestEngine& engine, const std::string& id, int64_t position,
                                   uint64_t seed, bool rewind = false) {
    std::vector<float> output;
    for (int64_t layer = 0; layer < 2; ++layer) {
      auto step = engine.Decode({id}, layer, {position}, RandomRows(seed + layer, 1, kD));
      step->sequences[0].rewind = rewind;
      step = engine.Run(std::move(step));
      EXPECT_TRUE(step->Outcome().ok()) << step->Outcome() << " at " << position;
      output.insert(output.end(), step->output.begin(), step->output.end());
    }
    return output;
  }
  std::string Fork(const std::string& id, const ForkOptions& options = {}) {
    const auto info = store_.Fork(*engine_.Find(id), options);
    EXPECT_TRUE(info.ok()) << info.status();
    return info.ok() ? info->id : "";
  }
  absl::Status ForkStatus(const std::string& id, int64_t position, int64_t max_tokens = 0) {
    ForkOptions options;
    options.position = position;
    options.max_tokens = max_tokens;
    return store_.Fork(*engine_.Find(id), options).status();
  }
  static std::string Export(TestEngine& engine, const std::string& id, bool move,
                            std::unique_ptr<Snapshot>* snapshot) {
    auto taken = engine.engine().TakeSnapshot(engine.Find(id), move);
    EXPECT_TRUE(taken.ok()) << taken.status();
    *snapshot = *std::move(taken);
    std::string bytes;
    engine.engine().Post([&](kernels::Backend* backend) {
      while (true) {
        const std::string part = (*snapshot)->Read(10'007, backend);
        if (part.empty()) {
          return;
        }
        bytes += part;
      }
    });
    engine.RunAll();
    return bytes;
  }
  static void Import(TestEngine& engine, const SnapshotState& state, const std::string& bytes) {
    auto import = engine.engine().BeginImport(state);
    ASSERT_TRUE(import.ok()) << import.status();
    engine.engine().Post([&](kernels::Backend* backend) { (*import)->Write(bytes, backend); });
    engine.RunAll();
    const auto info = (*import)->Publish();
    ASSERT_TRUE(info.ok()) << info.status();
  }

  TestEngine engine_{Config(), "random:7", Options()};
  SessionStore& store_ = engine_.engine().sessions();
};

TEST_P(SessionForkTest, ContinuesLikeTheSessionAndApartFromIt) {
  const std::string parent = engine_.Create(GetParam().prefix);
  Fill(engine_, parent, 201);
  const std::string same = Fork(parent);
  const std::string other = Fork(same);
  ForkOptions early;
  early.position = 195;
  const std::string cut = Fork(parent, early);
  // Each writes into what was the same page.
  std::vector<float> expected, apart;
  for (int64_t p = 201; p < 205; ++p) {
    apart = Decode(engine_, other, p, 900 + 10 * p);
    expected = Decode(engine_, parent, p, 10 * p);
    EXPECT_EQ(Decode(engine_, same, p, 10 * p), expected) << p;
    EXPECT_NE(apart, expected);
  }
  const std::string alone = engine_.Create(GetParam().prefix);
  for (int64_t layer = 0; layer < 2; ++layer) {
    std::vector<float> rows = RandomRows(layer, 201, kD);
    rows.resize(195 * kD);
    ASSERT_TRUE(engine_.Run(engine_.Prefill(alone, layer, 0, rows))->Outcome().ok());
  }
  EXPECT_EQ(Decode(engine_, cut, 195, 1), Decode(engine_, alone, 195, 1));
  ASSERT_TRUE(store_.Close("", parent).ok());
  EXPECT_EQ(Decode(engine_, same, 204, 10 * 204, true), expected);
  EXPECT_EQ(Decode(engine_, other, 204, 900 + 10 * 204, true), apart);
  engine_.engine().pool().Audit();
}

TEST_P(SessionForkTest, RepeatsTheLastStepOfTheSession) {
  const std::string parent = engine_.Create(GetParam().prefix);
  Fill(engine_, parent, 60);
  auto step = engine_.Run(engine_.Prefill(parent, 0, 60, RandomRows(5, 150, kD)));
  const std::vector<float> expected = step->output;
  const std::string fork = Fork(parent);
  step = engine_.Prefill(fork, 0, 60, RandomRows(5, 150, kD));
  step->sequences[0].rewind = true;
  step = engine_.Run(std::move(step));
  ASSERT_TRUE(step->Outcome().ok()) << step->Outcome();
  EXPECT_EQ(step->output, expected);
}

TEST_P(SessionForkTest, AnExportContinuesElsewhereBitForBit) {
  TestEngine target(Config(), "random:7", Options());
  const std::string parent = engine_.Create(GetParam().prefix, 400, "moved");
  Fill(engine_, parent, 180);
  for (int64_t p = 180; p < 190; ++p) {
    Decode(engine_, parent, p, p);
  }
  // In the middle of going back a few tokens.
  ASSERT_TRUE(engine_.Run(engine_.Rewind(parent, 185))->Outcome().ok());
  std::unique_ptr<Snapshot> snapshot;
  const std::string bytes = Export(engine_, parent, false, &snapshot);
  EXPECT_EQ(static_cast<int64_t>(bytes.size()), snapshot->bytes());
  Import(target, snapshot->state(), bytes);
  EXPECT_EQ(target.engine().sessions().Get("", "moved")->max_tokens, 400);
  for (int64_t p = 185; p < 285; ++p) {
    ASSERT_EQ(Decode(target, "moved", p, p), Decode(engine_, parent, p, p)) << p;
  }
}

TEST_P(SessionForkTest, APendingPrefixIsCompletedElsewhere) {
  TestEngine target(Config(), "random:7", Options());
  const std::string parent = engine_.Create(50, 0, "pending");
  const std::vector<float> rows = RandomRows(1, 50, kD);
  const std::vector<float> begin(rows.begin(), rows.begin() + 20 * kD);
  const std::vector<float> rest(rows.begin() + 20 * kD, rows.end());
  ASSERT_TRUE(engine_.Run(engine_.Prefill(parent, 0, 0, begin))->Outcome().ok());
  EXPECT_EQ(ReasonOf(ForkStatus(parent, 0)), Reason::kPrefixIncomplete);
  std::unique_ptr<Snapshot> snapshot;
  const std::string bytes = Export(engine_, parent, false, &snapshot);
  Import(target, snapshot->state(), bytes);
  const auto here = engine_.Run(engine_.Prefill(parent, 0, 20, rest));
  const auto there = target.Run(target.Prefill(parent, 0, 20, rest));
  ASSERT_TRUE(there->Outcome().ok()) << there->Outcome();
  EXPECT_EQ(here->output.size(), rows.size());
  EXPECT_EQ(here->output, there->output);
}

INSTANTIATE_TEST_SUITE_P(Caches, SessionForkTest,
                         testing::Values(Case{DType::kF32, 0}, Case{DType::kF32, 50},
                                         Case{DType::kBF16, 0}, Case{DType::kF16, 50},
                                         Case{DType::kInt8, 50}));

class SessionMoveTest : public SessionForkTest {};
INSTANTIATE_TEST_SUITE_P(Caches, SessionMoveTest, testing::Values(Case{}));

TEST_P(SessionMoveTest, AReservationHoldsAlsoWhatComesFromALongerRewind) {
  constexpr int64_t kMaxTokens = 1000;
  TestEngineOptions options = Options();
  options.engine.max_rewind = 2 * kMaxTokens;
  TestEngine source(Config(), "random:7", options);
  source.Create(0, kMaxTokens, "moved");
  Fill(source, "moved", 700);
  for (int64_t p = 700; p < 900; ++p) {  // the window's slack alone makes the last step repeatable
    Decode(source, "moved", p, p);
  }
  std::unique_ptr<Snapshot> snapshot;
  const std::string bytes = Export(source, "moved", false, &snapshot);
  Import(engine_, snapshot->state(), bytes);
  engine_.engine().pool().Audit();
  for (absl::Status full; full.ok();) {  // whoever has no reservation takes the rest
    full = engine_.Run(engine_.Prefill(engine_.Create(), 0, 0, RandomRows(1, 900, kD)))->Outcome();
  }
  EXPECT_EQ(Decode(engine_, "moved", 899, 899, true), Decode(source, "moved", 899, 899, true));
  for (int64_t p = 900; p < kMaxTokens; ++p) {
    ASSERT_EQ(Decode(engine_, "moved", p, p), Decode(source, "moved", p, p)) << p;
  }
}

TEST_P(SessionMoveTest, StepsWaitOutsideUntilTheMoveFailsOrTheSessionIsClosed) {
  const std::string id = engine_.Create();
  Fill(engine_, id, 20);
  std::unique_ptr<Snapshot> snapshot;
  Export(engine_, id, true, &snapshot);
  const auto reason = [&] {
    return ReasonOf(engine_.Run(engine_.Decode({id}, 0, {20}, RandomRows(1, 1, kD)))->Outcome());
  };
  EXPECT_EQ(reason(), Reason::kSessionMoving);
  EXPECT_EQ(ReasonOf(engine_.Run(engine_.Rewind(id, 3))->Outcome()), Reason::kSessionMoving);
  EXPECT_EQ(ReasonOf(ForkStatus(id, 0)), Reason::kSessionMoving);
  EXPECT_EQ(ReasonOf(engine_.engine().TakeSnapshot(engine_.Find(id), true).status()),
            Reason::kSessionMoving);
  snapshot.reset();  // the stream failed
  EXPECT_EQ(reason(), std::nullopt);
  Export(engine_, id, true, &snapshot);
  snapshot->SetSent();
  snapshot.reset();
  EXPECT_EQ(reason(), Reason::kSessionMoving);
  Export(engine_, id, true, &snapshot);  // whoever could not import it looks again, and gives up
  snapshot.reset();
  auto repeat = engine_.Decode({id}, 0, {20}, RandomRows(1, 1, kD));
  repeat->sequences[0].rewind = true;
  EXPECT_TRUE(engine_.Run(std::move(repeat))->Outcome().ok());
}

TEST_P(SessionMoveTest, AMoveThatDidNotArriveIsTakenBackUnlessAnotherHasBegun) {
  const std::string id = engine_.Create();
  Fill(engine_, id, 20);
  const auto open = [&] { return engine_.Find(id)->Open().ok(); };
  std::unique_ptr<Snapshot> snapshot;
  Export(engine_, id, true, &snapshot);
  const SentMove first = snapshot->SetSent();
  snapshot.reset();
  EXPECT_FALSE(open());
  first.TakeBack(engine_.clock().Now());
  EXPECT_TRUE(open());
  Export(engine_, id, true, &snapshot);
  const SentMove second = snapshot->SetSent();
  first.TakeBack(engine_.clock().Now());
  second.TakeBack(engine_.clock().Now());  // while its stream is open: that decides
  EXPECT_FALSE(open());
  snapshot.reset();
  first.TakeBack(engine_.clock().Now());
  EXPECT_FALSE(open());
  second.TakeBack(engine_.clock().Now());
  EXPECT_TRUE(open());
  ASSERT_TRUE(engine_.engine().sessions().Close("", id).ok());
  second.TakeBack(engine_.clock().Now());
}

TEST_P(SessionMoveTest, AMovedSessionEndsByItsTtlThoughItsClientKeepsAsking) {
  const std::string id = engine_.Create();
  Fill(engine_, id, 20);
  const int64_t ttl = engine_.engine().options().idle_ttl_ns;
  std::unique_ptr<Snapshot> snapshot;
  Export(engine_, id, true, &snapshot);
  engine_.clock().Advance(2 * ttl);  // a stream of any length holds it
  engine_.RunAll();
  snapshot->SetSent();
  snapshot.reset();
  const auto asks = [&] {
    return ReasonOf(engine_.Run(engine_.Decode({id}, 0, {20}, RandomRows(1, 1, kD)))->Outcome());
  };
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(asks(), Reason::kSessionMoving);
    EXPECT_EQ(ReasonOf(engine_.Run(engine_.Rewind(id, 3))->Outcome()), Reason::kSessionMoving);
    engine_.clock().Advance(ttl / 3 - 1);
  }
  ASSERT_TRUE(engine_.engine().sessions().Get("", id).ok()) << "which is answered, and restarts it";
  engine_.clock().Advance(ttl / 2);
  EXPECT_EQ(asks(), Reason::kSessionMoving);
  engine_.clock().Advance(ttl / 2);
  engine_.RunAll();
  EXPECT_EQ(ReasonOf(engine_.engine().sessions().Get("", id).status()), Reason::kSessionExpired);
}

TEST_P(SessionMoveTest, AReservedSessionMovesOutOfAFullCache) {
  const std::string id = engine_.Create(0, 4000);
  Fill(engine_, id, 3000);
  const std::string greedy = engine_.Create();
  int64_t rows = 0;
  while (engine_.Run(engine_.Prefill(greedy, 1, rows, RandomRows(1, 64, kD)))->Outcome().ok()) {
    rows += 64;
    if (rows == 4096) {
      engine_.Create(0, 64 * 16);
      break;
    }
  }
  std::unique_ptr<Snapshot> snapshot;
  const std::string bytes = Export(engine_, id, true, &snapshot);
  EXPECT_EQ(static_cast<int64_t>(bytes.size()), snapshot->bytes());
}

TEST_P(SessionMoveTest, AReservationHoldsBesideForks) {
  // A fork that lives on while its reserved parent starts anew needs room of its own.
  const std::string parent = engine_.Create(0, 4096);
  Fill(engine_, parent, 4000);
  EXPECT_TRUE(ForkStatus(parent, 0).ok());
  EXPECT_TRUE(ForkStatus(parent, 0).ok());  // the same room does for both
  const std::string second = engine_.Create(0, 4096);
  Fill(engine_, second, 4000);
  absl::Status status;
  while (status.ok()) {
    CreateOptions options;
    options.max_tokens = 64;
    status = store_.Create(options).status();
  }
  status = ForkStatus(second, 0);
  EXPECT_EQ(ReasonOf(status), Reason::kCacheFull) << status;
  EXPECT_GT(RetryAfterMs(status).value_or(0), 0);
  for (const std::string& id : {parent, second}) {
    ASSERT_TRUE(engine_.Run(engine_.Rewind(id, 0))->Outcome().ok());
    Fill(engine_, id, 4096);
  }
  engine_.engine().pool().Audit();
}

TEST_P(SessionMoveTest, ForkIsRefusedWhereItsCapIsTooLow) {
  const std::string id = engine_.Create();
  Fill(engine_, id, 100);
  EXPECT_EQ(ReasonOf(ForkStatus(id, 0, 99)), Reason::kPastMaxTokens);
  EXPECT_EQ(ReasonOf(ForkStatus(id, 101)), Reason::kPositionMismatch);
  EXPECT_TRUE(ForkStatus(id, 0, 100).ok());
}

}  // namespace
}  // namespace attnd
