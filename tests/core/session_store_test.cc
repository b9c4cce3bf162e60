// Creation, look-up, listing, expiry, and the reasons of NOT_FOUND.
#include "core/session_store.h"

#include <gtest/gtest.h>

#include <set>

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

}  // namespace
}  // namespace attnd
