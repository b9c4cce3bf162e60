// What a session was sent: overwritten, cut, and let go past its limit.
#include "client/cpp/history.h"

#include <gtest/gtest.h>

namespace attnd::client {
namespace {

std::vector<float> Kept(const History& history) {
  const std::span<const float> rows = history.Rows(0, 0, history.length(0));
  return {rows.begin(), rows.end()};
}

TEST(History, IsOverwrittenFromAPositionOn) {
  History history(1, 2, 0);
  history.Put(0, 0, std::vector<float>{1, 2, 3, 4, 5, 6});
  history.Put(0, 3, std::vector<float>{7, 8});
  EXPECT_EQ(history.length(0), 4);
  EXPECT_EQ(history.bytes(), 32);
  history.Put(0, 1, std::vector<float>{9, 9});
  EXPECT_EQ(Kept(history), (std::vector<float>{1, 2, 9, 9}));
  history.Cut(1);
  EXPECT_EQ(Kept(history), (std::vector<float>{1, 2}));
  EXPECT_EQ(history.bytes(), 8);
}

TEST(History, SendsItsLastStepAlone) {
  History history(1, 1, 0);
  history.Put(0, 0, std::vector<float>{0, 1, 2});
  history.Put(0, 3, std::vector<float>{3, 4});
  EXPECT_EQ(history.NextStop(0, 0), 3);
  EXPECT_EQ(history.NextStop(0, 2), 3);
  EXPECT_EQ(history.NextStop(0, 3), 5);
  EXPECT_EQ(history.NextStop(0, 4), 5);
  history.Cut(2);
  EXPECT_EQ(history.NextStop(0, 0), 2);
}

TEST(History, IsLetGoPastItsLimitAndWhereRowsAreMissing) {
  History full(2, 1, 12);
  full.Put(0, 0, std::vector<float>{1, 2});
  full.Put(1, 0, std::vector<float>{1});
  EXPECT_TRUE(full.complete());
  full.Put(1, 1, std::vector<float>{1});
  EXPECT_FALSE(full.complete());
  EXPECT_EQ(full.bytes(), 0);
  History gap(1, 1, 0);
  gap.Put(0, 0, std::vector<float>{1});
  gap.Put(0, 2, std::vector<float>{1});
  EXPECT_FALSE(gap.complete());
}

}  // namespace
}  // namespace attnd::client
