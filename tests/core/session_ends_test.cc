// What is remembered of sessions that have ended.
#include <gtest/gtest.h>

#include <string>

#include "core/error.h"
#include "core/session_store.h"
#include "tests/support/test_engine.h"

namespace attnd {
namespace {

TEST(RecentEndsTest, AnIdThatIsUsedAgainIsRememberedFromItsLastEnd) {
  TestEngine engine(TinyConfig(8, 2), "random:7");
  SessionStore& store = engine.engine().sessions();
  const auto ends = [&](const std::string& id) {
    engine.Create(0, 0, id);
    ASSERT_TRUE(store.Close("", id).ok());
  };
  constexpr int kRemembered = 100'000;
  ends("again");
  for (int i = 0; i < kRemembered - 2; ++i) {
    ends("other-" + std::to_string(i));
  }
  ends("again");
  ends("one-more");
  EXPECT_EQ(ReasonOf(store.Get("", "again").status()), Reason::kSessionClosed);
  for (int i = 0; i < kRemembered - 2; ++i) {
    ends("later-" + std::to_string(i));
  }
  EXPECT_EQ(ReasonOf(store.Get("", "again").status()), Reason::kSessionClosed);
  ends("last");
  EXPECT_EQ(ReasonOf(store.Get("", "again").status()), Reason::kSessionUnknown);
}

}  // namespace
}  // namespace attnd
