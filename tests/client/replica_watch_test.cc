// Which replica answers, and whether the one before it died.
#include "client/cpp/replica_watch.h"

#include <gtest/gtest.h>

namespace attnd::client {
namespace {

constexpr std::chrono::milliseconds kLong{60'000};
constexpr std::chrono::milliseconds kNever{0};

TEST(ReplicaWatch, KnowsThatAnotherReplicaAnswers) {
  ReplicaWatch watch;
  EXPECT_FALSE(watch.ChangedWithin(kLong, kLong));
  watch.Note("a");
  watch.Note("a");
  EXPECT_FALSE(watch.ChangedWithin(kLong, kLong));
  watch.Note("b");
  EXPECT_TRUE(watch.ChangedWithin(kLong, kNever));
  EXPECT_FALSE(watch.ChangedWithin(kNever, kLong));
}

TEST(ReplicaWatch, WaitsLessForOneThatDidNotAnswerAtTheEnd) {
  ReplicaWatch watch;
  watch.Note("a");
  watch.NoteBroken();
  watch.Note("a");  // it lives after all
  watch.Note("b");
  EXPECT_TRUE(watch.ChangedWithin(kLong, kNever));
  watch.NoteBroken();
  watch.Note("c");
  EXPECT_FALSE(watch.ChangedWithin(kLong, kNever));
  EXPECT_TRUE(watch.ChangedWithin(kLong, kLong));
}

}  // namespace
}  // namespace attnd::client
