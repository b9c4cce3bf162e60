// Many threads drive the engine at random: every answer is held against a float64 reference, every
// refusal against the wire contract's rules, and in the end nothing is left. Meant for the thread
// sanitizer; `tests/soak --without-grpc` runs it for minutes. From the environment:
// ATTND_SOAK_SECONDS (default 6, half of them with eviction), ATTND_SOAK_THREADS (12),
// ATTND_SOAK_SEED (another each time).
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <random>
#include <thread>

#include "kernels/cpu/cpu_backend.h"
#include "tests/core/soak_client.h"
#include "tests/support/test_engine.h"

namespace attnd {
namespace {

constexpr int64_t kRows = 224, kMaxRewind = 12, kWindow = 20;

double FromEnvironment(const char* name, double otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtod(text, nullptr);
}

double RssMib() {
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0, resident = 0;
  statm >> size >> resident;
  return static_cast<double>(resident * sysconf(_SC_PAGESIZE)) / (1 << 20);
}

// With and without eviction of idle sessions.
class EngineSoakTest : public testing::TestWithParam<bool> {
 protected:
  EngineSoakTest()
      : seconds_(FromEnvironment("ATTND_SOAK_SECONDS", 6) / 2),
        threads_(static_cast<uint64_t>(FromEnvironment("ATTND_SOAK_THREADS", 12))),
        seed_(static_cast<uint64_t>(
            FromEnvironment("ATTND_SOAK_SEED", static_cast<double>(std::random_device{}())))) {
    const ModelConfig config = TinyConfig(kWindow, 2, 4);
    const LayerPlan plan = MakeLayerPlan(config);
    weights_ = *OpenWeights("random:7", plan);
    // Prefixes that end within a page, on its edge, and behind it.
    for (const int64_t prefix : {0, 5, 64, 100}) {
      const int64_t early = prefix > 0 ? prefix / 2 : 30;
      families_.push_back(MakeSoakFamily(plan, weights_.get(), prefix, kRows, {early, 130},
                                         seed_ + families_.size()));
    }
    const auto threads = static_cast<int64_t>(threads_);
    EngineOptions options;
    options.kv_cache_bytes = (3 + threads / 16) << 20;  // too little
    options.max_batch_rows = 48;
    options.prefill_chunk_rows = 16;
    options.max_rewind = kMaxRewind;
    options.max_sessions = threads * 3;
    options.max_queue = 2 + threads / 4;
    options.evict_idle = GetParam();
    engine_ = *Engine::Create(config, weights_.get(), *kernels::MakeCpuBackend({2, "best"}),
                              options, clock_, nullptr);
  }

  // What must hold at every moment.
  void Watch() {
    const EngineStats stats = engine_->stats();
    int64_t bytes = 0;
    for (const PerKind& kinds : {stats.pool.used_bytes, stats.pool.reserved_bytes}) {
      for (const int64_t kind : kinds) {
        bytes += kind;
        if (kind < 0) {
          ledger_.Find("inconsistent stats", "a kind has " + std::to_string(kind) + " bytes");
        }
      }
    }
    if (bytes > stats.pool.capacity_bytes) {
      ledger_.Find("inconsistent stats", std::to_string(bytes) + " bytes used and reserved of " +
                                             std::to_string(stats.pool.capacity_bytes));
    }
    const StoreStats& store = stats.store;
    if (store.sessions != store.created - store.closed - store.expired - store.evicted) {
      ledger_.Find("inconsistent stats", std::to_string(store.sessions) + " sessions of " +
                                             std::to_string(store.created));
    }
    engine_->pool().Audit();
    ledger_.Count("audits");
  }

  void Soak() {
    const MonotonicNs begin = clock_.Now();
    const auto end = begin + static_cast<MonotonicNs>(seconds_ * 1e9);
    std::vector<std::thread> threads;
    for (uint64_t number = 1; number <= threads_; ++number) {
      threads.emplace_back([this, number, end] {
        SoakClient client(*engine_, clock_, families_, ledger_, number, seed_);
        while (clock_.Now() < end && !ledger_.failed()) {
          client.Act();
        }
        client.CloseAll();
      });
    }
    while (clock_.Now() < end && !ledger_.failed()) {
      Watch();
      if (first_rss_ == 0 && clock_.Now() - begin > (end - begin) / 3) {
        first_rss_ = RssMib();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    last_rss_ = RssMib();
    for (std::thread& thread : threads) {
      thread.join();
    }
  }

  int64_t LeakedBytes() const {
    const PoolStats pool = engine_->stats().pool;
    const int64_t used = std::accumulate(pool.used_bytes.begin(), pool.used_bytes.end(), 0L);
    return std::accumulate(pool.reserved_bytes.begin(), pool.reserved_bytes.end(), used);
  }

  const double seconds_;
  const uint64_t threads_, seed_;
  SystemClock clock_;
  std::unique_ptr<WeightSource> weights_;
  std::vector<SoakFamily> families_;
  std::unique_ptr<Engine> engine_;
  SoakLedger ledger_;
  double first_rss_ = 0, last_rss_ = 0;
};

TEST_P(EngineSoakTest, EveryAnswerIsRightAndNothingIsLeft) {
  engine_->Start();
  Soak();
  EXPECT_TRUE(engine_->Drain(clock_.Now() + 60'000'000'000)) << "steps are stuck";
  const EngineStats stats = engine_->stats();
  engine_->Stop();
  engine_->pool().Audit();
  std::printf("soak without gRPC, %s eviction: %llu threads, %g s, seed %llu\n%s",
              GetParam() ? "with" : "without", static_cast<unsigned long long>(threads_), seconds_,
              static_cast<unsigned long long>(seed_), ledger_.Table().c_str());
  std::printf("  wrong answers                %lld\n  pages leaked                 %lld bytes\n",
              static_cast<long long>(ledger_.count("wrong answer")),
              static_cast<long long>(LeakedBytes()));
  std::printf("  RSS                          first %.1f MiB, last %.1f MiB\n", first_rss_,
              last_rss_);
  EXPECT_EQ(LeakedBytes(), 0);
  EXPECT_EQ(stats.store.sessions, 0);
  EXPECT_EQ(stats.store.tokens_local + stats.store.tokens_global + stats.store.tokens_held, 0);
  EXPECT_EQ(stats.queued_steps, 0);
  // The sanitizers keep what they have seen for a while; a leak of a page a step would be plain.
  EXPECT_LE(last_rss_, first_rss_ * 1.5 + 64) << "MiB: memory grows";
  // The soak has been where it hurts.
  EXPECT_GT(ledger_.count("rows checked"), 100);
  EXPECT_GT(ledger_.count(GetParam() ? "refused: SESSION_EVICTED" : "refused: CACHE_FULL"), 0);
  for (const char* count : {"forked", "imported", "moved"}) {
    EXPECT_GT(ledger_.count(count), 0) << count;
  }
  EXPECT_GT(ledger_.count("exports given up") + ledger_.count("imports given up"), 0);
  EXPECT_GT(ledger_.count("refused: STEP_CANCELLED"), 0);
}

INSTANTIATE_TEST_SUITE_P(Eviction, EngineSoakTest, testing::Bool(),
                         [](const auto& instance) { return instance.param ? "On" : "Off"; });

}  // namespace
}  // namespace attnd
