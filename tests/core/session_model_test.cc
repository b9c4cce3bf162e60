// The real store, pool, drafts, snapshots and imports under random operations, against plain
// lists: after each operation contents, lengths, bytes and reasons are equal. Rows are numbers
// written into their slots, so that a million operations take a minute.
//
// ATTND_MODEL_OPERATIONS and ATTND_MODEL_SEED choose how many and which; the seed is printed.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>

#include "tests/core/session_player.h"

namespace attnd {
namespace {

// Sanitizers and emulated processors take ten times as long for each.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__aarch64__)
constexpr int64_t kOperations = 50'000;
#else
constexpr int64_t kOperations = 500'000;
#endif

int64_t FromEnvironment(const char* name, int64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoll(value, nullptr, 10);
}

class SessionModelTest : public testing::TestWithParam<bool> {};

TEST_P(SessionModelTest, NoPageIsLostOrCountedTwiceByRewindsForksAndImports) {
  const auto seed = static_cast<uint32_t>(
      FromEnvironment("ATTND_MODEL_SEED", static_cast<int64_t>(std::random_device{}())));
  const int64_t operations = FromEnvironment("ATTND_MODEL_OPERATIONS", kOperations);
  std::printf("seed %u, %lld operations\n", seed, static_cast<long long>(operations));
  SCOPED_TRACE("seed " + std::to_string(seed));
  Real real(GetParam());
  Player player(&real, seed, "s", true);
  for (int64_t i = 0; i < operations; ++i) {
    player.Play();
    ASSERT_FALSE(HasFailure()) << "after " << i << " operations";
  }
  player.CloseAll();
  real.pool->Audit();
  EXPECT_EQ(real.pool->stats().used_bytes, PerKind{});
  EXPECT_EQ(real.pool->stats().reserved_bytes, PerKind{});
  player.Print();
}

// The store and the pool under the hands of many threads; each checks its own sessions, whose
// pages are partly those of a session that all have forked.
TEST_P(SessionModelTest, NoPageIsLostOrCountedTwiceInManyThreads) {
  const auto seed = static_cast<uint32_t>(
      FromEnvironment("ATTND_MODEL_SEED", static_cast<int64_t>(std::random_device{}())));
  const int64_t operations = FromEnvironment("ATTND_MODEL_OPERATIONS", kOperations) / 50;
  std::printf("seed %u, 4 threads of %lld operations\n", seed, static_cast<long long>(operations));
  SCOPED_TRACE("seed " + std::to_string(seed));
  Real real(GetParam());
  Player owner(&real, seed, "common", false);
  auto [common, model] = owner.MakeCommon(200);
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Player player(&real, seed + t, "t" + std::to_string(t), false);
      player.SetCommon(common, model);
      for (int64_t i = 0; i < operations && !HasFailure(); ++i) {
        player.Play();
      }
      player.CloseAll();
      if (t == 0) {
        player.Print();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_TRUE(real.store->Close("", common->spec().id).ok());
  common.reset();
  real.pool->Audit();
  EXPECT_EQ(real.pool->stats().used_bytes, PerKind{});
  EXPECT_EQ(real.pool->stats().reserved_bytes, PerKind{});
}
INSTANTIATE_TEST_SUITE_P(Eviction, SessionModelTest, testing::Bool());

}  // namespace
}  // namespace attnd
