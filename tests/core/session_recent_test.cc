// The sessions used last, for those who look on.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "core/session_store.h"
#include "tests/support/test_engine.h"

namespace attnd {
namespace {

TEST(RecentSessionsTest, AreThoseUsedLastOfAllTenants) {
  TestEngineOptions options;
  options.engine.max_sessions = 1000;
  TestEngine engine(TinyConfig(8, 2), "random:7", options);
  SessionStore& store = engine.engine().sessions();
  EXPECT_TRUE(store.MostRecent(5).empty());
  // More than are looked at with the lock held.
  for (int i = 0; i < 600; ++i) {
    CreateOptions create;
    create.tenant = i % 2 == 0 ? "acme" : "zeta";
    create.id = "s" + std::to_string(i);
    ASSERT_TRUE(store.Create(create).ok());
    engine.clock().Advance(10);
  }
  ASSERT_TRUE(store.Find("acme", "s42").ok());
  engine.clock().Advance(10);
  ASSERT_TRUE(store.Find("zeta", "s7").ok());
  std::vector<std::string> ids;
  for (const auto& session : store.MostRecent(4)) {
    ids.push_back(session->spec().id);
  }
  EXPECT_EQ(ids, (std::vector<std::string>{"s7", "s42", "s599", "s598"}));
  EXPECT_TRUE(store.MostRecent(0).empty());
  EXPECT_EQ(store.MostRecent(10'000).size(), 600U);
}

TEST(RecentSessionsTest, MayEndWhileTheyAreLookedFor) {
  TestEngineOptions options;
  options.engine.max_sessions = 5000;
  TestEngine engine(TinyConfig(8, 2), "random:7", options);
  SessionStore& store = engine.engine().sessions();
  std::vector<std::string> ids;
  for (int i = 0; i < 1500; ++i) {
    ids.push_back(engine.Create(0, 16));
  }
  std::thread closer([&] {
    for (const std::string& id : ids) {
      EXPECT_TRUE(store.Close("", id).ok());
    }
  });
  while (store.stats().sessions > 0) {
    store.MostRecent(50);
  }
  closer.join();
  EXPECT_TRUE(store.MostRecent(50).empty());
  EXPECT_EQ(engine.engine().pool().stats().reserved_bytes[Index(PageKind::kLocal)], 0);
}

}  // namespace
}  // namespace attnd
