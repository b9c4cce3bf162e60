// Creation, look-up, listing, expiry, and the reasons of NOT_FOUND.
#include "core/session_store.h"

#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "tests/support/test_engine.h"

namespace attnd {
namespace {

class SessionStoreTest : public testing::Test {
 protected:
  static TestEngineOptions Options() {
    TestEngineOptions options;
    options.engine.idle_ttl_ns = 1000;
    options.engine.max_idle_ttl_ns = 5000;
    options.engine.max_sessions = 50;
    return options;
  }
  absl::Status CreateStatus(const CreateOptions& options) {
    return store_.Create(options).status();
  }

  TestEngine engine_{TinyConfig(8, 2), "random:7", Options()};
  SessionStore& store_ = engine_.engine().sessions();
};

TEST_F(SessionStoreTest, MadeIdsAreUnguessableAndValid) {
  std::set<std::string> ids;
  for (int i = 0; i < 50; ++i) {
    const std::string id = engine_.Create();
    EXPECT_TRUE(CheckSessionId(id).ok());
    EXPECT_GE(id.size(), 32U);
    ids.insert(id);
  }
  EXPECT_EQ(ids.size(), 50U);
  EXPECT_EQ(ReasonOf(CreateStatus({})), Reason::kTooManySessions);
}

TEST_F(SessionStoreTest, IdsAreChecked) {
  for (const std::string& bad : {std::string(129, 'a'), std::string("a b"), std::string("ä"),
                                 std::string("a/b"), std::string("a\0b", 3)}) {
    CreateOptions options;
    options.id = bad;
    EXPECT_EQ(ReasonOf(CreateStatus(options)), Reason::kBadSessionId) << bad;
    EXPECT_EQ(ReasonOf(store_.Get("", bad).status()), Reason::kBadSessionId);
  }
  EXPECT_EQ(ReasonOf(store_.Get("", "").status()), Reason::kBadSessionId);
  engine_.Create(0, 0, "A.z_0-9");
  CreateOptions twice;
  twice.id = "A.z_0-9";
  EXPECT_EQ(ReasonOf(CreateStatus(twice)), Reason::kSessionExists);
}

TEST_F(SessionStoreTest, ArgumentsAreChecked) {
  const auto with = [](auto member, int64_t value) {
    CreateOptions options;
    options.*member = value;
    return options;
  };
  for (const CreateOptions& bad :
       {with(&CreateOptions::prefix_length, -1), with(&CreateOptions::prefix_length, 4097),
        with(&CreateOptions::max_tokens, -1), with(&CreateOptions::max_tokens, 4097),
        with(&CreateOptions::idle_ttl_ns, 0), with(&CreateOptions::idle_ttl_ns, 5001)}) {
    EXPECT_EQ(ReasonOf(CreateStatus(bad)), Reason::kBadArgument);
  }
  CreateOptions inconsistent;
  inconsistent.prefix_length = 10;
  inconsistent.max_tokens = 9;
  EXPECT_EQ(ReasonOf(CreateStatus(inconsistent)), Reason::kBadArgument);
  EXPECT_TRUE(CreateStatus(with(&CreateOptions::idle_ttl_ns, 5000)).ok());
}

TEST_F(SessionStoreTest, NotFoundSaysWhy) {
  EXPECT_EQ(ReasonOf(store_.Get("", "never").status()), Reason::kSessionUnknown);
  engine_.Create(0, 0, "closed");
  ASSERT_TRUE(store_.Close("", "closed").ok());
  EXPECT_EQ(ReasonOf(store_.Get("", "closed").status()), Reason::kSessionClosed);
  EXPECT_EQ(ReasonOf(store_.Close("", "closed").status()), Reason::kSessionClosed);
  engine_.Create(0, 0, "idle");
  engine_.clock().Advance(1001);
  EXPECT_EQ(store_.ReapExpired(), 1);
  EXPECT_EQ(ReasonOf(store_.Get("", "idle").status()), Reason::kSessionExpired);
  engine_.Create(0, 0, "idle");
  EXPECT_TRUE(store_.Get("", "idle").ok()) << "an id may be used again";
}

TEST_F(SessionStoreTest, ToOtherTenantsASessionDoesNotExist) {
  CreateOptions options;
  options.tenant = "a";
  options.id = "mine";
  ASSERT_TRUE(CreateStatus(options).ok());
  EXPECT_EQ(ReasonOf(store_.Get("b", "mine").status()), Reason::kSessionUnknown);
  EXPECT_EQ(ReasonOf(store_.Close("b", "mine").status()), Reason::kSessionUnknown);
  EXPECT_TRUE(store_.List("b", 10, "")->sessions.empty());
  options.tenant = "b";
  EXPECT_TRUE(CreateStatus(options).ok()) << "ids are per tenant";
}

TEST_F(SessionStoreTest, ACallThatNamesItRestartsTheIdleTimeAndListDoesNot) {
  engine_.Create(0, 0, "used");
  engine_.Create(0, 0, "listed");
  engine_.clock().Advance(900);
  ASSERT_TRUE(store_.Get("", "used").ok());
  ASSERT_EQ(store_.List("", 10, "")->sessions.size(), 2U);
  engine_.clock().Advance(200);
  EXPECT_EQ(store_.ReapExpired(), 1);
  EXPECT_TRUE(store_.Get("", "used").ok());
  EXPECT_FALSE(store_.Get("", "listed").ok());
  EXPECT_EQ(store_.next_expiry(), engine_.clock().Now() - 200 + 1000);
}

TEST_F(SessionStoreTest, SessionsThatExpireTogetherEndAFewAtATime) {
  for (int i = 0; i < 50; ++i) {
    engine_.Create();
  }
  EXPECT_EQ(store_.ReapExpired(), 0);
  engine_.clock().Advance(1001);
  const int64_t first = store_.ReapExpired();
  EXPECT_GT(first, 0);
  EXPECT_LT(first, 50);
  EXPECT_LE(store_.next_expiry(), engine_.clock().Now()) << "there are more";
  engine_.RunAll();
  EXPECT_EQ(store_.stats().sessions, 0);
  EXPECT_EQ(store_.stats().expired, 50);
  EXPECT_EQ(store_.next_expiry(), kNever);
}

TEST_F(SessionStoreTest, RoomIsMadeOfTheExpiredBehindThoseUsedSince) {
  for (int i = 0; i < 49; ++i) {
    engine_.Create(0, 0, "used" + std::to_string(i));
  }
  engine_.Create(0, 0, "zz");
  engine_.clock().Advance(500);
  for (int i = 0; i < 49; ++i) {
    ASSERT_TRUE(store_.Get("", "used" + std::to_string(i)).ok());
  }
  EXPECT_FALSE(store_.MakeRoom(1));
  engine_.clock().Advance(501);
  EXPECT_TRUE(store_.MakeRoom(1));
  EXPECT_EQ(ReasonOf(store_.Get("", "zz").status()), Reason::kSessionExpired);
  EXPECT_EQ(store_.stats().sessions, 49);
}

TEST_F(SessionStoreTest, ListsByPages) {
  for (int i = 0; i < 7; ++i) {
    engine_.Create(0, 0, "s" + std::to_string(i));
  }
  std::string token;
  std::vector<std::string> ids;
  int pages = 0;
  do {
    const absl::StatusOr<SessionPage> page = store_.List("", 3, token);
    ASSERT_TRUE(page.ok());
    for (const SessionInfo& info : page->sessions) {
      ids.push_back(info.id);
    }
    token = page->next_page_token;
    ++pages;
  } while (!token.empty());
  EXPECT_EQ(pages, 3);
  EXPECT_EQ(ids, (std::vector<std::string>{"s0", "s1", "s2", "s3", "s4", "s5", "s6"}));
  EXPECT_EQ(ReasonOf(store_.List("", 3, "\xff").status()), Reason::kBadArgument);
}

TEST_F(SessionStoreTest, ReservesOrRefuses) {
  CreateOptions options;
  options.max_tokens = 4096;
  const absl::StatusOr<SessionInfo> info = store_.Create(options);
  ASSERT_TRUE(info.ok());
  // At least contract's pages: 64 on the global layer, and a window on the local one.
  EXPECT_GE(info->reserved_bytes, 64 * engine_.engine().pool().page_bytes(PageKind::kGlobal) +
                                      2 * engine_.engine().pool().page_bytes(PageKind::kLocal));
  const PerKind reserved = engine_.engine().stats().pool.reserved_bytes;
  EXPECT_EQ(reserved[0] + reserved[1] + reserved[2], info->reserved_bytes);
  ASSERT_TRUE(store_.Close("", info->id).ok());
  EXPECT_EQ(engine_.engine().stats().pool.reserved_bytes, PerKind{});
  TestEngineOptions small = Options();
  small.engine.kv_cache_bytes = 3 << 20;
  options.prefix_length = 4096;  // whose rows may all be held back
  TestEngine tight(TinyConfig(8, 2), "random:7", small);
  EXPECT_EQ(ReasonOf(tight.engine().sessions().Create(options).status()), Reason::kCacheFull);
}

class EvictionTest : public testing::Test {
 protected:
  static TestEngineOptions Options(bool evict) {
    TestEngineOptions options;
    options.engine.kv_cache_bytes = int64_t{3} << 20;
    options.engine.evict_idle = evict;
    return options;
  }
  // Latents of which the pool holds some 2000 tokens.
  static ModelConfig Config() {
    ModelConfig config = TinyConfig(8, 2);
    config.d_kv_compressed = 256;
    return config;
  }
  static bool Append(TestEngine& engine, const std::string& id, int64_t rows) {
    return engine.Run(engine.Prefill(id, 1, engine.Find(id)->Length(1), RandomRows(1, rows, 64)))
        ->Outcome()
        .ok();
  }
};

TEST_F(EvictionTest, TheLongestIdleUnreservedSessionMakesRoom) {
  TestEngine engine(Config(), "random:7", Options(true));
  const std::string reserved = engine.Create(0, 200);
  std::vector<std::string> ids;
  for (int i = 0; i < 3; ++i) {
    ids.push_back(engine.Create());
    ASSERT_TRUE(Append(engine, ids.back(), 400));
    engine.clock().Advance(1000);
  }
  ASSERT_TRUE(Append(engine, reserved, 10));
  engine.Find(ids[0]);  // used again: the second has been idle for longest
  engine.clock().Advance(1000);
  const std::string greedy = engine.Create();
  const auto ended = [&](const std::string& id) {
    return ReasonOf(engine.engine().sessions().Get("", id).status());
  };
  while (engine.engine().sessions().stats().evicted == 0) {
    ASSERT_TRUE(Append(engine, greedy, 64));
  }
  EXPECT_EQ(ended(ids[1]), Reason::kSessionEvicted);
  while (engine.engine().sessions().stats().evicted < 3) {
    ASSERT_TRUE(Append(engine, greedy, 64));
  }
  EXPECT_EQ(ended(ids[0]), Reason::kSessionEvicted);
  EXPECT_FALSE(ended(reserved).has_value());
  while (Append(engine, greedy, 64)) {
  }
  EXPECT_FALSE(ended(greedy).has_value());  // whoever asks is not idle
  EXPECT_FALSE(ended(reserved).has_value());
  EXPECT_TRUE(Append(engine, reserved, 190));
}

// Each eviction looked at all sessions, with the store locked: 10 ms at 50,000.
TEST_F(EvictionTest, EvictionsDoNotLookAtAllSessionsEachTime) {
  constexpr int kSessions = 4000;
  TestEngineOptions options = Options(true);
  options.engine.kv_cache_bytes = int64_t{64} << 20;
  TestEngine engine(TinyConfig(8, 2), "random:7", options);
  std::vector<std::string> ids;
  for (int i = 0; i < kSessions; ++i) {
    ids.push_back(engine.Create());
    ASSERT_TRUE(Append(engine, ids.back(), 1));
    engine.clock().Advance(1000);
  }
  SessionStore& store = engine.engine().sessions();
  ASSERT_EQ(store.stats().evicted, 0);
  const auto seconds_of = [&](int evictions) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < evictions; ++i) {
      EXPECT_TRUE(store.MakeRoom(1));
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const double first = seconds_of(1);
  EXPECT_LT(seconds_of(500), 100 * first);
  EXPECT_EQ(store.stats().evicted, 501);
}

// Whatever happens to sessions between two evictions.
TEST_F(EvictionTest, TheLongestIdleGoesThoughOthersWereUsedEndedOrMadeAnew) {
  TestEngine engine(Config(), "random:7", Options(true));
  SessionStore& store = engine.engine().sessions();
  const auto make = [&](const std::string& id) {
    CreateOptions create;
    create.id = id;
    ASSERT_TRUE(store.Create(create).ok());
    ASSERT_TRUE(Append(engine, id, 64));
    engine.clock().Advance(1000);
  };
  for (const char* id : {"a", "b", "c", "d", "e"}) {
    make(id);
  }
  const auto evicts = [&](const std::string& id) {
    ASSERT_TRUE(store.MakeRoom(1));
    EXPECT_EQ(ReasonOf(store.Get("", id).status()), Reason::kSessionEvicted) << id;
    engine.clock().Advance(1000);
  };
  evicts("a");
  ASSERT_TRUE(Append(engine, "b", 1));  // used
  engine.clock().Advance(1000);
  ASSERT_TRUE(store.Close("", "c").ok());  // ended, and made anew
  make("c");
  make("f");
  evicts("d");
  engine.Find("e")->Hold();
  evicts("b");
  evicts("c");
  engine.Find("e")->Unhold(engine.clock().Now());
  evicts("f");
  evicts("e");
  EXPECT_FALSE(store.MakeRoom(1));
}

TEST_F(EvictionTest, NobodyIsEvictedUnlessAskedFor) {
  TestEngine engine(Config(), "random:7", Options(false));
  const std::string id = engine.Create();
  const std::string greedy = engine.Create();
  ASSERT_TRUE(Append(engine, id, 64));
  while (Append(engine, greedy, 64)) {
  }
  EXPECT_TRUE(engine.engine().sessions().Get("", id).ok());
}

TEST_F(EvictionTest, ExpiredSessionsMakeRoomFirst) {
  TestEngineOptions options = Options(true);
  options.engine.idle_ttl_ns = 10'000;
  TestEngine engine(Config(), "random:7", options);
  CreateOptions create;
  create.idle_ttl_ns = 1'000'000;
  const std::string stays = engine.engine().sessions().Create(create)->id;
  const std::string greedy = engine.engine().sessions().Create(create)->id;
  const std::string expires = engine.Create();
  ASSERT_TRUE(Append(engine, stays, 64));
  ASSERT_TRUE(Append(engine, expires, 1000));
  engine.clock().Advance(10'000);
  const auto room = engine.engine().sessions().MakeRoom(1);
  EXPECT_TRUE(room);
  EXPECT_EQ(ReasonOf(engine.engine().sessions().Get("", expires).status()),
            Reason::kSessionExpired);
  EXPECT_TRUE(engine.engine().sessions().Get("", stays).ok());
}

TEST(AffinityKeyTest, IsWhatMetadataCanCarry) {
  TestEngine engine(TinyConfig(8, 2), "random:7");
  SessionStore& store = engine.engine().sessions();
  const auto create = [&](const std::string& key) {
    CreateOptions options;
    options.affinity_key = key;
    return store.Create(options).status();
  };
  EXPECT_TRUE(create("").ok());
  EXPECT_TRUE(create("a key ~").ok());
  EXPECT_TRUE(create(std::string(256, 'k')).ok());
  for (const char* key : {"a\tb", "a\nb",
                          "a\x7f"
                          "b",
                          "a\xc3\xa9"}) {
    EXPECT_EQ(ReasonOf(create(key)), Reason::kBadArgument) << key;
  }
  EXPECT_EQ(create("a\x01").message(),
            "affinity_key: byte 1 is 1; expected printable ASCII, 32 to 126");
  EXPECT_EQ(ReasonOf(create(std::string(257, 'k'))), Reason::kBadArgument);
}

}  // namespace
}  // namespace attnd
