// Copies of sessions, forks and exports, where memory is short and clients go: nobody sees stale
// rows or those of another, and every page comes back.
#include "tests/integration/copies.h"

#include <random>
#include <thread>

#include "tests/integration/metrics_text.h"
#include "tests/integration/tcp_relay.h"
#include "tests/integration/tiny_server.h"
#include "tests/support/golden.h"

namespace attnd {
namespace {

class CopiesTest : public testing::Test {
 protected:
  explicit CopiesTest(const std::vector<std::string>& more = {"--kv_cache_bytes=12MiB"})
      : server_(WideModelFlags(dir_, more)), wire_(server_.grpc()) {}

  void TearDown() override {
    v1::ListSessionsResponse list;
    ASSERT_TRUE(wire_.List(1000, "", &list).ok());
    v1::CloseSessionResponse closed;
    for (const v1::Session& session : list.sessions()) {
      wire_.Close(session.session_id(), &closed);
    }
    EXPECT_EQ(wire_.Stats().kv_cache_used_bytes(), 0) << "every page comes back";
    ASSERT_TRUE(server_.alive()) << server_.Stderr();
  }

  // A session with the same rows in both layers.
  std::string Filled(uint64_t seed, int64_t rows) {
    const std::string session = wire_.Create();
    for (uint32_t layer = 0; layer < kWideLayers; ++layer) {
      wire_.Prefill(session, layer, 0, WideRows(seed, rows));
    }
    return session;
  }
  // Decodes one row on both layers.
  std::vector<float> Next(const std::string& session, int64_t position, uint64_t seed) {
    std::vector<float> answers;
    for (uint32_t layer = 0; layer < kWideLayers; ++layer) {
      const auto rows = wire_.Decode(layer, {{session, position}}, WideRows(seed, 1));
      answers.insert(answers.end(), rows.begin(), rows.end());
    }
    return answers;
  }

  TempDir dir_;
  ReadyServer server_;
  Wire wire_;
};

TEST_F(CopiesTest, AForkOfASessionLongerThanItsWindowSeesNoStaleKeys) {
  constexpr int64_t kRows = 400, kFloor = 336;  // of cuts: 400 - 100 - 64 tokens dropped, window
  const std::string parent = Filled(1, kRows);
  const std::vector<float> rows = RandomRows(1, kRows, kWideWidth);
  int accepted = 0;
  for (const int64_t position : {1, 64, 128, 200, 300, 335, 336, 337, 350, 384, 399, 400}) {
    std::string fork;
    const Outcome outcome = Fork(wire_, parent, position, &fork);
    EXPECT_EQ(outcome.text(),
              position < kFloor ? "FAILED_PRECONDITION REWIND_TOO_FAR" : std::string("OK"))
        << position;
    if (!outcome.ok()) {
      continue;
    }
    ++accepted;
    const std::string alone = wire_.Create();
    for (uint32_t layer = 0; layer < kWideLayers; ++layer) {
      wire_.Prefill(alone, layer, 0, MakeTensor(RowsOf(rows, kWideWidth, 0, position), kWideWidth));
    }
    for (int64_t i = 0; i < 70; ++i) {  // into the next page
      const Verdict same = Compare(Next(fork, position + i, 100 + i),
                                   Next(alone, position + i, 100 + i), kGoldenF32);
      ASSERT_TRUE(same.passed) << "fork at " << position << ", row " << i << ": " << same.text;
    }
    wire_.Close(fork);
    wire_.Close(alone);
  }
  EXPECT_EQ(accepted, 6);
  EXPECT_EQ(Next(parent, kRows, 5), Next(Filled(1, kRows), kRows, 5)) << "the parent's are its own";
}

TEST_F(CopiesTest, AnImportOfASessionLongerThanItsWindowContinuesBitForBit) {
  for (const int64_t rows : {99, 100, 101, 164, 165, 400}) {
    const std::string session = Filled(1, rows);
    ExportCall exported(wire_, session);
    ASSERT_TRUE(exported.Finish().ok());
    ASSERT_EQ(Import(wire_, "arrived", exported.chunks()).text(), "OK");
    for (int64_t i = 0; i < 70; ++i) {
      ASSERT_EQ(Next("arrived", rows + i, i), Next(session, rows + i, i)) << rows << ", " << i;
    }
    v1::Session info;
    ASSERT_TRUE(wire_.Rewind(session, rows + 10, &info).ok());
    ASSERT_TRUE(wire_.Rewind("arrived", rows + 10, &info).ok());
    EXPECT_EQ(Next("arrived", rows + 10, 9), Next(session, rows + 10, 9));
    wire_.Close(session);
    wire_.Close("arrived");
  }
}

TEST_F(CopiesTest, PagesAreFreedWhenTheImporterIsKilled) {
  const std::string session = Filled(1, 1000);
  ExportCall exported(wire_, session);
  ASSERT_TRUE(exported.Finish().ok());
  ASSERT_GE(exported.chunks().size(), 3u);
  const int64_t before = wire_.Stats().kv_cache_used_bytes();
  for (int round = 0; round < 3; ++round) {
    TcpRelay relay(server_.grpc());
    Wire doomed(relay.address());
    ImportCall import(doomed, "arriving");
    ASSERT_TRUE(import.Write(exported.chunks()[0]));
    ASSERT_TRUE(import.Write(exported.chunks()[1]));
    ASSERT_TRUE(WaitUntil([&] { return wire_.Stats().kv_cache_used_bytes() >= 2 * before; }));
    relay.Break();
    ASSERT_TRUE(WaitUntil([&] { return wire_.Stats().kv_cache_used_bytes() == before; }))
        << wire_.Stats().kv_cache_used_bytes() << " bytes, " << before << " before the import";
    v1::Session info;
    EXPECT_EQ(wire_.Get("arriving", &info).text(), "NOT_FOUND SESSION_UNKNOWN");
  }
  EXPECT_EQ(Import(wire_, "arriving", exported.chunks()).text(), "OK");
  EXPECT_EQ(Next("arriving", 1000, 5), Next(session, 1000, 5));
}

TEST_F(CopiesTest, PagesAreFreedWhenAnIdleImportersLeaseEnds) {
  ReadyServer hasty(WideModelFlags(dir_, {"--kv_cache_bytes=12MiB", "--idle_ttl=300ms"}));
  Wire wire(hasty.grpc());
  ExportCall exported(wire_, Filled(1, 1000));
  ASSERT_TRUE(exported.Finish().ok());
  ImportCall import(wire, "arriving");  // which is connected, and says no more
  ASSERT_TRUE(import.Write(exported.chunks()[0]));
  ASSERT_TRUE(WaitUntil([&] { return wire.Stats().kv_cache_used_bytes() > 0; }));
  EXPECT_TRUE(WaitUntil([&] { return wire.Stats().kv_cache_used_bytes() == 0; }, Seconds(10)));
  EXPECT_EQ(import.Finish().text(), "DATA_LOSS TRUNCATED");
}

TEST_F(CopiesTest, ImportsUnderWayCountAsSessionsAndHoldThePagesOnlyWhileTheyGoOn) {
  ReadyServer few(
      WideModelFlags(dir_, {"--kv_cache_bytes=12MiB", "--max_sessions=2", "--idle_ttl=3s"}));
  Wire wire(few.grpc());
  ExportCall exported(wire_, Filled(1, 100));
  ASSERT_TRUE(exported.Finish().ok());
  v1::SessionChunk header = exported.chunks()[0];
  header.clear_data();
  const int64_t bytes = header.header().data_bytes();
  {
    ImportCall empty(wire, "empty");
    ASSERT_TRUE(empty.Write(header));
    empty.Write(v1::SessionChunk());
    EXPECT_EQ(empty.Finish().text(), "FAILED_PRECONDITION FORMAT_MISMATCH");
  }
  ImportCall one(wire, "one"), two(wire, "two");
  ASSERT_TRUE(one.Write(header));
  ASSERT_TRUE(two.Write(header));
  v1::Session info;
  ASSERT_TRUE(WaitUntil([&] { return wire.Stats().kv_cache_used_bytes() >= 2 * bytes; }));
  EXPECT_EQ(wire.Create({}, &info).text(), "RESOURCE_EXHAUSTED TOO_MANY_SESSIONS");
  v1::SessionChunk drop;
  drop.set_data("x");
  for (int i = 0; i < 200 && one.Write(drop); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(one.Finish().text(), "DATA_LOSS TRUNCATED");
  EXPECT_EQ(two.Finish().text(), "DATA_LOSS TRUNCATED");
  EXPECT_EQ(wire.Stats().kv_cache_used_bytes(), 0);
}

TEST_F(CopiesTest, ASessionIsHeldNoLongerByAMoveThatNobodyReads) {
  ReadyServer hasty(WideModelFlags(dir_, {"--kv_cache_bytes=12MiB", "--idle_ttl=2s"}));
  Wire wire(hasty.grpc());
  const std::string session = wire.Create();
  for (uint32_t layer = 0; layer < kWideLayers; ++layer) {
    wire.Prefill(session, layer, 0, WideRows(1, 2048));  // 5 MiB
  }
  Wire slow(hasty.grpc(), {{"grpc.http2.bdp_probe", 0}});  // which takes 64 KiB at a time
  ExportCall exported(slow, session, true);
  ASSERT_TRUE(exported.Read());
  v1::PrefillResponse response;
  const v1::PrefillRequest next = PrefillOf(session, 0, 2048, WideRows(2, 1));
  EXPECT_EQ(wire.Prefill(next, &response).text(), "UNAVAILABLE SESSION_MOVING");
  EXPECT_TRUE(WaitUntil([&] { return wire.Prefill(next, &response).ok(); }, Seconds(20)));
  EXPECT_FALSE(exported.Finish().ok());
}

// Closed, or pressed for memory, while it is read: true, and false.
class ExportedMeanwhileTest : public CopiesTest, public testing::WithParamInterface<bool> {
 protected:
  ExportedMeanwhileTest() : CopiesTest({"--kv_cache_bytes=12MiB", "--evict=idle_lru"}) {}
};

TEST_P(ExportedMeanwhileTest, AnExportKeepsItsPagesUntilTheyAreRead) {
  constexpr int64_t kRows = 2048;  // 5 MiB
  const std::string session = Filled(1, kRows);
  ExportCall undisturbed(wire_, session);
  ASSERT_TRUE(undisturbed.Finish().ok());
  Wire slow(server_.grpc(), {{"grpc.http2.bdp_probe", 0}});  // which takes 64 KiB at a time
  ExportCall exported(slow, session);
  ASSERT_TRUE(exported.Read());
  if (GetParam()) {
    wire_.Close(session);
  }
  // Others take all pages that are free.
  Outcome outcome;
  for (uint64_t seed = 10; seed < 14; ++seed) {
    v1::CreateSessionRequest reserving;  // not evicted for the next
    reserving.set_max_tokens(640);
    v1::Session info;
    outcome = wire_.Create(reserving, &info);
    if (outcome.ok()) {
      wire_.Prefill(info.session_id(), 1, 0, WideRows(seed, 640));
    }
  }
  EXPECT_EQ(outcome.text(), "RESOURCE_EXHAUSTED CACHE_FULL") << "the export holds its pages";
  ASSERT_TRUE(exported.Finish().ok());
  EXPECT_EQ(exported.Data(), undisturbed.Data());
  EXPECT_EQ(exported.chunks().back().digest(), undisturbed.chunks().back().digest());
  v1::Session info;
  EXPECT_EQ(wire_.Get(session, &info).text(), GetParam() ? "NOT_FOUND SESSION_CLOSED" : "OK");
}

INSTANTIATE_TEST_SUITE_P(Copies, ExportedMeanwhileTest, testing::Bool(), [](const auto& instance) {
  return instance.param ? "Closed" : "Pressed";
});

// Sessions full of rows that tell whose they are, more than there is room for: some are evicted,
// some forked, some go through an export. Every answer must be that of the session's own rows.
class MarkedRowsTest : public CopiesTest {
 protected:
  static constexpr int64_t kMarks = 6, kRows = 300;

  MarkedRowsTest() : CopiesTest({"--kv_cache_bytes=6MiB", "--evict=idle_lru"}) {
    for (int64_t mark = 0; mark < kMarks; ++mark) {
      const std::string session = Filled(mark, kRows);
      right_.push_back(Next(session, kRows, 77));
      wire_.Close(session);
    }
  }

  struct Marked {
    std::string id;
    int64_t mark;
  };

  // Whoever is full or gone is no fault here; a wrong answer is.
  void Play(uint32_t thread, uint32_t seed) {
    Wire wire(server_.grpc());
    std::mt19937 random(seed + thread);
    std::vector<Marked> sessions;
    for (int i = 0; i < 120 && !HasFailure(); ++i) {
      const std::string name = std::to_string(thread) + "-" + std::to_string(i);
      if (sessions.size() < 3) {
        Make(wire, name, static_cast<int64_t>(random() % kMarks), &sessions);
        continue;
      }
      const size_t at = random() % sessions.size();
      bool there = Check(wire, sessions[at]);
      if (there && random() % 2 == 0) {
        there = Copy(wire, sessions[at], name, random() % 2 == 0, &sessions);
      }
      if (!there || sessions.size() > 6) {
        v1::CloseSessionResponse closed;
        wire.Close(sessions[at].id, &closed);
        sessions.erase(sessions.begin() + static_cast<int64_t>(at));
      }
    }
  }
  static void Make(Wire& wire, const std::string& id, int64_t mark, std::vector<Marked>* sessions) {
    v1::CreateSessionRequest create;
    create.set_session_id(id);
    v1::Session info;
    bool made = wire.Create(create, &info).ok();
    for (uint32_t layer = 0; layer < kWideLayers && made; ++layer) {
      v1::PrefillResponse response;
      made = wire.Prefill(PrefillOf(id, layer, 0, WideRows(mark, kRows)), &response).ok();
    }
    if (made) {
      sessions->push_back({id, mark});
    }
  }
  bool Check(Wire& wire, const Marked& session) {
    std::vector<float> answers;
    for (uint32_t layer = 0; layer < kWideLayers; ++layer) {
      v1::DecodeRequest request = DecodeOf(layer, {{session.id, kRows}}, WideRows(77, 1));
      request.mutable_sequences(0)->set_rewind(true);
      v1::DecodeResponse response;
      if (!wire.Decode(request, &response).ok()) {
        return false;
      }
      const std::vector<float> rows = Values(response.output());
      answers.insert(answers.end(), rows.begin(), rows.end());
    }
    EXPECT_EQ(answers, right_[static_cast<size_t>(session.mark)]) << session.id;
    ++checked_;
    return true;
  }
  // False when the session is gone.
  bool Copy(Wire& wire, const Marked& session, const std::string& name, bool fork,
            std::vector<Marked>* sessions) {
    std::string id = name;
    Outcome outcome;
    if (fork) {
      outcome = Fork(wire, session.id, 0, &id);
    } else {
      ExportCall exported(wire, session.id);
      if (!exported.Finish().ok()) {
        return false;
      }
      outcome = Import(wire, name, exported.chunks());
      imported_ += outcome.ok() ? 1 : 0;
    }
    if (outcome.ok()) {
      sessions->push_back({id, session.mark});
    }
    return true;
  }

  std::vector<std::vector<float>> right_;
  std::atomic<int> checked_{0}, imported_{0};
};

TEST_F(MarkedRowsTest, NobodyIsAnsweredFromAnothersRowsWhileSessionsAreEvictedAndImported) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::vector<std::thread> threads;
  for (uint32_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([this, thread, seed] { Play(thread, seed); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_GT(checked_, 40);
  EXPECT_GT(imported_, 10);
  EXPECT_GT(Scrape(server_.http()).Get("attnd_sessions_ended_total{reason=\"evicted\"}"), 10);
}

}  // namespace
}  // namespace attnd
