// The bytes in flight: charged, given back, refused beyond the limit.
#include "server/byte_budget.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "core/error.h"

namespace attnd::server {
namespace {

TEST(ByteBudgetTest, RefusesWhatExceedsTheLimitAndSaysWhenToTryAgain) {
  ByteBudget budget(100);
  absl::StatusOr<ByteCharge> first = budget.Charge(60);
  ASSERT_TRUE(first.ok());
  const absl::Status refused = budget.Charge(41).status();
  EXPECT_EQ(ReasonOf(refused), Reason::kQueueFull);
  EXPECT_GT(RetryAfterMs(refused).value_or(0), 0);
  EXPECT_NE(refused.message().find("--max_inflight_bytes"), absl::string_view::npos);
  EXPECT_EQ(budget.used(), 60);
  EXPECT_TRUE(budget.Charge(40).ok());  // and given back at once
  *first = ByteCharge();
  EXPECT_EQ(budget.used(), 0);
}

TEST(ByteBudgetTest, ALoneRequestMayExceedTheLimit) {
  ByteBudget budget(100);
  const absl::StatusOr<ByteCharge> large = budget.Charge(1'000'000);
  ASSERT_TRUE(large.ok());
  EXPECT_FALSE(budget.Charge(1).ok());
}

TEST(ByteBudgetTest, AMovedChargeIsGivenBackOnce) {
  ByteBudget budget(100);
  ByteCharge charge = *budget.Charge(10);
  ByteCharge other = std::move(charge);
  EXPECT_EQ(budget.used(), 10);
  other = *budget.Charge(20);
  EXPECT_EQ(budget.used(), 20);
}

TEST(ByteBudgetTest, ThreadsNeverExceedIt) {
  ByteBudget budget(100);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20'000; ++i) {
        const absl::StatusOr<ByteCharge> charge = budget.Charge(30);
        EXPECT_LE(budget.used(), 100);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(budget.used(), 0);
}

}  // namespace
}  // namespace attnd::server
