// The lifecycle of sessions: made, found, listed, rewound, closed, expired; and the memory.
#include <set>

#include "tests/integration/long_prefill.h"
#include "tests/integration/metrics_text.h"
#include "tests/integration/tiny_server.h"

namespace attnd {
namespace {

using testing::ElementsAre;
using testing::MatchesRegex;

class SessionsTest : public TinyServerTest {
 protected:
  double Ended(const std::string& reason) {
    return Scrape(server_.http()).Get("attnd_sessions_ended_total{reason=\"" + reason + "\"}");
  }
};

TEST_F(SessionsTest, CreateAndGetSayTheSame) {
  v1::CreateSessionRequest request;
  request.set_session_id("A.b-c_9");
  request.set_prefix_length(10);
  request.set_max_tokens(100);
  request.mutable_idle_ttl()->set_seconds(77);
  request.set_affinity_key("worker 3");
  v1::Session created, got;
  ASSERT_TRUE(wire_.Create(request, &created).ok());
  ASSERT_TRUE(wire_.Get("A.b-c_9", &got).ok());
  for (const v1::Session& s : {created, got}) {
    EXPECT_EQ(s.session_id(), "A.b-c_9");
    EXPECT_EQ(s.prefix_length(), 10);
    EXPECT_EQ(s.max_tokens(), 100);
    EXPECT_EQ(s.affinity_key(), "worker 3");
    EXPECT_THAT(s.layer_lengths(), ElementsAre(0, 0, 0, 0, 0, 0));
    EXPECT_EQ(s.rewind_floor(), 0);
    EXPECT_EQ(s.cache_bytes(), 0);
    EXPECT_GT(s.reserved_bytes(), 0);
    const int64_t now = std::time(nullptr);
    EXPECT_NEAR(static_cast<double>(s.create_time().seconds()), static_cast<double>(now), 30);
    EXPECT_NEAR(static_cast<double>(s.expire_time().seconds() - s.create_time().seconds()), 77, 30);
  }
  EXPECT_GT(wire_.Stats().kv_cache_reserved_bytes(), 0);
  wire_.Close("A.b-c_9");
  EXPECT_EQ(wire_.Stats().kv_cache_reserved_bytes(), 0);
}

TEST_F(SessionsTest, MadeIdsAreUnguessable) {
  std::set<std::string> ids;
  for (int i = 0; i < 50; ++i) {
    const std::string id = wire_.Create();
    EXPECT_THAT(id, MatchesRegex("[A-Za-z0-9._-]+"));
    EXPECT_GE(id.size(), 22u) << "128 bits";
    EXPECT_LE(id.size(), 128u);
    EXPECT_TRUE(ids.insert(id).second);
  }
}

TEST_F(SessionsTest, ListedInPages) {
  std::set<std::string> expected;
  for (int i = 0; i < 25; ++i) {
    expected.insert(wire_.Create());
  }
  for (int32_t size : {1, 7, 25, 1000, 0}) {
    std::multiset<std::string> listed;
    std::string token;
    int pages = 0;
    do {
      v1::ListSessionsResponse page;
      ASSERT_TRUE(wire_.List(size, token, &page).ok());
      EXPECT_LE(page.sessions_size(), size == 0 ? 1000 : size);
      for (const v1::Session& session : page.sessions()) {
        listed.insert(session.session_id());
        EXPECT_EQ(session.layer_lengths_size(), 6);
      }
      token = page.next_page_token();
      ASSERT_LE(++pages, 26);
    } while (!token.empty());
    EXPECT_THAT(listed, testing::ElementsAreArray(expected)) << size;
  }
}

TEST_F(SessionsTest, ListGoesOnAfterASessionOfThePageHasGone) {
  for (const char* id : {"a", "b", "c", "d"}) {
    v1::CreateSessionRequest request;
    request.set_session_id(id);
    v1::Session info;
    ASSERT_TRUE(wire_.Create(request, &info).ok());
  }
  v1::ListSessionsResponse page;
  ASSERT_TRUE(wire_.List(2, "", &page).ok());
  ASSERT_EQ(page.sessions_size(), 2);
  wire_.Close(page.sessions(1).session_id());
  v1::ListSessionsResponse rest;
  ASSERT_TRUE(wire_.List(10, page.next_page_token(), &rest).ok());
  ASSERT_EQ(rest.sessions_size(), 2);
  EXPECT_EQ(rest.sessions(0).session_id(), "c");
  EXPECT_EQ(rest.sessions(1).session_id(), "d");
  EXPECT_EQ(rest.next_page_token(), "");
}

TEST_F(SessionsTest, CloseFreesItsBytesAndIsRemembered) {
  const std::string session = wire_.Create();
  for (uint32_t layer = 0; layer < 6; ++layer) {
    wire_.Prefill(session, layer, 0, TinyRows(layer, 100));
  }
  v1::Session info;
  wire_.Get(session, &info);
  const int64_t used = wire_.Stats().kv_cache_used_bytes();
  EXPECT_GT(used, 0);
  EXPECT_EQ(info.cache_bytes(), used);
  EXPECT_EQ(wire_.Close(session), used);
  EXPECT_EQ(wire_.Stats().kv_cache_used_bytes(), 0);
  EXPECT_EQ(wire_.Stats().sessions(), 0);
  v1::CloseSessionResponse closed;
  EXPECT_EQ(wire_.Close(session, &closed).text(), "NOT_FOUND SESSION_CLOSED");
  EXPECT_EQ(wire_.Get(session, &info).text(), "NOT_FOUND SESSION_CLOSED");
  v1::PrefillResponse response;
  EXPECT_EQ(wire_.Prefill(PrefillOf(session, 0, 0, TinyRows(1, 1)), &response).text(),
            "NOT_FOUND SESSION_CLOSED")
      << "never a silent new session";
  EXPECT_EQ(Ended("closed"), 1);
}

TEST_F(SessionsTest, ARewoundSessionGoesOnAsIfNothingHadBeen) {
  const std::string session = wire_.Create();
  const std::string twin = wire_.Create();
  for (uint32_t layer = 0; layer < 6; ++layer) {
    wire_.Prefill(session, layer, 0, TinyRows(layer, 90));
    wire_.Prefill(twin, layer, 0, TinyRows(layer, 90));
    if (layer < 3) {  // a client that died in the middle of a step
      wire_.Decode(layer, {{session, 90, 5}}, TinyRows(99, 5));
    }
  }
  v1::Session info;
  ASSERT_TRUE(wire_.Rewind(session, 90, &info).ok());
  EXPECT_THAT(info.layer_lengths(), testing::Each(90));
  for (uint32_t layer = 0; layer < 6; ++layer) {
    EXPECT_EQ(wire_.Decode(layer, {{session, 90}}, TinyRows(7, 1)),
              wire_.Decode(layer, {{twin, 90}}, TinyRows(7, 1)));
  }
  ASSERT_TRUE(wire_.Rewind(session, 200, &info).ok()) << "longer than every layer: no change";
  EXPECT_THAT(info.layer_lengths(), testing::Each(91));
}

TEST_F(SessionsTest, AnExpiredSessionLeavesNoMemoryBehindAndIsSaidToBeGone) {
  v1::CreateSessionRequest request;
  request.mutable_idle_ttl()->set_nanos(300'000'000);
  v1::Session info;
  ASSERT_TRUE(wire_.Create(request, &info).ok());
  const std::string idle = info.session_id();
  const std::string kept = wire_.Create();
  wire_.Prefill(idle, kTinyLocal, 0, TinyRows(1, 100));
  EXPECT_GT(wire_.Stats().kv_cache_used_bytes(), 0);
  // GetStats and List do not name it.
  ASSERT_TRUE(WaitUntil([&] { return wire_.Stats().sessions() == 1; }, Seconds(10)));
  EXPECT_EQ(wire_.Stats().kv_cache_used_bytes(), 0) << "its pages are free";
  EXPECT_EQ(wire_.Get(idle, &info).text(), "NOT_FOUND SESSION_EXPIRED");
  v1::CloseSessionResponse closed;
  EXPECT_EQ(wire_.Close(idle, &closed).text(), "NOT_FOUND SESSION_EXPIRED");
  v1::PrefillResponse response;
  EXPECT_EQ(wire_.Prefill(PrefillOf(idle, 0, 100, TinyRows(1, 1)), &response).text(),
            "NOT_FOUND SESSION_EXPIRED");
  EXPECT_TRUE(wire_.Get(kept, &info).ok());
  EXPECT_EQ(Ended("expired"), 1);
  EXPECT_EQ(Ended("closed"), 0);
}

// Closed and cancelled at the moment at which it expires: what it held is given back once.
TEST_F(SessionsTest, TwoClientsNeverShareTheStateOfASessionThatEndedTwice) {
  constexpr int kRounds = 16;
  std::map<uint64_t, std::vector<float>> alone;
  for (const uint64_t seed : {1, 2}) {
    const std::string session = wire_.Create();
    alone[seed] = wire_.Prefill(session, kTinyLocal, 0, TinyRows(seed, 100));
    wire_.Close(session);
  }
  int expired = 0;
  for (int round = 0; round < kRounds; ++round) {
    v1::CreateSessionRequest request;
    request.mutable_idle_ttl()->set_nanos(40'000'000);
    v1::Session info;
    ASSERT_TRUE(wire_.Create(request, &info).ok());
    const std::string doomed = info.session_id();
    wire_.Prefill(doomed, kTinyLocal, 0, TinyRows(3, 100));
    Pause(Seconds(0.036 + 0.0006 * round));
    LongPrefill cancelled(wire_, PrefillOf(doomed, kTinyLocal, 100, TinyRows(4, 100)));
    cancelled.Cancel();
    v1::CloseSessionResponse closed;
    const Outcome outcome = wire_.Close(doomed, &closed);
    expired += outcome.reason == "SESSION_EXPIRED" ? 1 : 0;
    EXPECT_TRUE(outcome.ok() || outcome.reason == "SESSION_EXPIRED") << outcome;
    // Two clients come at once; they write by turns, where they would meet in one state.
    const std::string a = wire_.Create();
    const std::string b = wire_.Create();
    wire_.Prefill(a, kTinyLocal, 0, TinyRows(5, 30));
    wire_.Prefill(b, kTinyLocal, 0, TinyRows(6, 30));
    EXPECT_EQ(wire_.Prefill(a, kTinyLocal, 0, TinyRows(1, 100), true), alone[1]);
    EXPECT_EQ(wire_.Prefill(b, kTinyLocal, 0, TinyRows(2, 100), true), alone[2]);
    EXPECT_EQ(wire_.Decode(kTinyLocal, {{a, 100}}, TinyRows(7, 1)).size(), 64u);
    EXPECT_EQ(wire_.Prefill(b, kTinyLocal, 0, TinyRows(2, 100), true), alone[2]);
    cancelled.Wait();
    EXPECT_GT(wire_.Close(a), 0);
    EXPECT_GT(wire_.Close(b), 0);
    EXPECT_EQ(wire_.Stats().kv_cache_used_bytes(), 0) << "neither leaked nor freed twice";
  }
  EXPECT_EQ(Ended("expired"), expired);
  EXPECT_EQ(Ended("closed"), 2 + 3 * kRounds - expired) << "each ended once";
}

TEST_F(SessionsTest, CallsThatNameASessionKeepIt) {
  v1::CreateSessionRequest request;
  request.mutable_idle_ttl()->set_seconds(1);
  v1::Session info;
  ASSERT_TRUE(wire_.Create(request, &info).ok());
  const std::string session = info.session_id();
  int64_t position = 0;
  for (int i = 0; i < 8; ++i) {  // 2 s, twice its time to live
    Pause(Seconds(0.25));
    if (i % 2 == 0) {
      ASSERT_TRUE(wire_.Get(session, &info).ok());
    } else {
      wire_.Decode(kTinyLocal, {{session, position++}}, TinyRows(1, 1));
    }
  }
  EXPECT_TRUE(wire_.Get(session, &info).ok());
}

TEST_F(SessionsTest, EverySessionGoesThroughTheCounters) {
  for (int i = 0; i < 20; ++i) {
    wire_.Close(wire_.Create());
  }
  wire_.Create();
  const Metrics metrics = Scrape(server_.http());
  EXPECT_EQ(metrics.Get("attnd_sessions_created_total"), 21);
  EXPECT_EQ(metrics.Get("attnd_sessions_ended_total{reason=\"closed\"}"), 20);
  EXPECT_EQ(metrics.Get("attnd_sessions"), 1);
  EXPECT_EQ(wire_.Stats().sessions(), 1);
}

}  // namespace
}  // namespace attnd
