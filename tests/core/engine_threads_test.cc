// The engine with its thread and many callers: every step is answered once, answers are right,
// and nothing is left behind. Meant for the thread sanitizer too.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>

#include "core/error.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/golden.h"
#include "tests/support/test_engine.h"

namespace attnd {
namespace {

constexpr int64_t kD = 64;

// Waits for the end of one step.
class Waiter {
 public:
  std::function<void(std::unique_ptr<Step>)> Callback() {
    return [this](std::unique_ptr<Step> step) {
      std::lock_guard lock(mutex_);
      ASSERT_EQ(step_, nullptr) << "answered twice";
      step_ = std::move(step);
      done_.notify_one();
    };
  }
  std::unique_ptr<Step> Wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return step_ != nullptr; });
    return std::move(step_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  std::unique_ptr<Step> step_;
};

class EngineThreadsTest : public testing::Test {
 protected:
  EngineThreadsTest() {
    const ModelConfig config = TinyConfig(8, 2);
    weights_ = *OpenWeights("random:7", MakeLayerPlan(config));
    EngineOptions options;
    options.kv_cache_bytes = int64_t{64} << 20;
    options.max_batch_rows = 64;
    options.prefill_chunk_rows = 16;
    options.max_rewind = 4;
    engine_ = *Engine::Create(config, weights_.get(), *kernels::MakeCpuBackend({2, "best"}),
                              options, clock_, nullptr);
    engine_->Start();
  }

  std::unique_ptr<Step> Run(const std::shared_ptr<Session>& session, int64_t layer,
                            int64_t position, std::vector<float> rows, uint64_t connection,
                            bool cancel) {
    auto step = std::make_unique<Step>();
    step->layer = layer;
    step->connection = connection;
    SequenceStep part;
    part.session = session;
    part.position = position;
    part.rows = static_cast<int64_t>(rows.size()) / kD;
    step->sequences.push_back(part);
    step->hidden = std::move(rows);
    Waiter waiter;
    step->done = waiter.Callback();
    const auto cancelled = step->cancelled;
    const bool may_run = position % 2 == 0;
    EXPECT_TRUE((may_run ? engine_->EnqueueOrRun(&step) : engine_->Enqueue(&step)).ok());
    if (cancel) {
      cancelled->store(true);
      engine_->Poke();
    }
    return waiter.Wait();
  }

  // Small steps on this thread while another does something.
  template <typename Fn>
  void RunStepsWhile(Fn fn) {
    if (busy_ == nullptr) {
      busy_ = *engine_->sessions().Find("", engine_->sessions().Create({})->id);
    }
    std::atomic<bool> done{false};
    std::thread other([&] {
      fn();
      done.store(true);
    });
    const std::vector<float> rows = RandomRows(1, 2, kD);
    do {
      Run(busy_, 0, busy_->Length(0), rows, 0, false);
      if (busy_->Length(0) > 100) {
        EXPECT_TRUE(busy_->Commit({{0, LayerCache{}}}).ok());
      }
    } while (!done.load());
    other.join();
  }

  template <typename Holds>
  static bool Becomes(Holds holds) {
    for (int ms = 0; !holds() && ms < 5000; ++ms) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return holds();
  }

  SystemClock clock_;
  std::unique_ptr<WeightSource> weights_;
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<Session> busy_;  // before the engine in destruction
};

// Callers' threads that ran batches took back wake-ups that were the engine's thread's.
TEST_F(EngineThreadsTest, NoJobIsLeftBehind) {
  for (int round = 0; round < 300; ++round) {
    const auto ran = std::make_shared<std::atomic<int>>(0);  // a late job may outlive the test
    RunStepsWhile([&] {
      for (int i = 0; i < 4; ++i) {
        EXPECT_TRUE(engine_->Post([ran](kernels::Backend*) { ran->fetch_add(1); }));
      }
    });
    ASSERT_TRUE(Becomes([&] { return ran->load() == 4; })) << "round " << round;
  }
}

TEST_F(EngineThreadsTest, SessionsExpireThoughNothingElseHappens) {
  for (int round = 0; round < 300; ++round) {
    RunStepsWhile([&] {
      CreateOptions brief;
      brief.idle_ttl_ns = 1'000'000;
      EXPECT_TRUE(engine_->sessions().Create(brief).ok());
    });
    ASSERT_TRUE(Becomes([&] { return engine_->sessions().stats().sessions == 1; }))
        << "round " << round;
  }
}

TEST_F(EngineThreadsTest, ManyCallersGetRightAnswers) {
  const std::vector<float> rows = RandomRows(1, 120, kD);
  std::vector<std::vector<float>> expected(2);
  for (int64_t layer : {0, 1}) {
    const std::string id = engine_->sessions().Create({})->id;
    expected[static_cast<size_t>(layer)] =
        Run(*engine_->sessions().Find("", id), layer, 0, rows, 0, false)->output;
    ASSERT_TRUE(engine_->sessions().Close("", id).ok());
  }
  std::atomic<int> answered{0}, cancelled{0};
  const auto client = [&](uint64_t seed) {
    std::mt19937 random(static_cast<uint32_t>(seed));
    for (int round = 0; round < 12; ++round) {
      const std::string id = engine_->sessions().Create({})->id;
      const auto session = *engine_->sessions().Find("", id);
      const int64_t layer = static_cast<int64_t>(random() % 2);
      for (int64_t at = 0; at < 120;) {
        const int64_t n = std::min<int64_t>(120 - at, 1 + static_cast<int64_t>(random() % 40));
        const auto from = rows.begin() + at * kD;
        const auto step = Run(session, layer, at, {from, from + n * kD}, seed, random() % 4 == 0);
        if (ReasonOf(step->Outcome()) == Reason::kStepCancelled) {
          ++cancelled;
          EXPECT_EQ(session->Length(layer), at);
          continue;
        }
        ASSERT_TRUE(step->Outcome().ok()) << step->Outcome();
        const auto& all = expected[static_cast<size_t>(layer)];
        const Verdict verdict =
            Compare(step->output, {all.begin() + at * kD, all.begin() + (at + n) * kD}, kGoldenF32);
        ASSERT_TRUE(verdict.passed) << verdict.text;
        at += n;
        ++answered;
        engine_->sessions().List("", 10, "").status().IgnoreError();
        engine_->stats();
      }
      EXPECT_TRUE(engine_->sessions().Close("", id).ok());
    }
  };
  std::vector<std::thread> clients;
  for (uint64_t i = 1; i <= 6; ++i) {
    clients.emplace_back(client, i);
  }
  for (std::thread& thread : clients) {
    thread.join();
  }
  EXPECT_GT(answered.load(), 100);
  EXPECT_GT(cancelled.load(), 0);
  EXPECT_TRUE(engine_->Drain(clock_.Now() + 1'000'000'000));
  engine_->Stop();
  EXPECT_EQ(engine_->stats().pool.used_bytes, PerKind{});
  EXPECT_EQ(engine_->stats().store.tokens_local, 0);
  engine_->pool().Audit();
}

TEST_F(EngineThreadsTest, SessionsAreClosedUnderRunningSteps) {
  for (int round = 0; round < 50; ++round) {
    const std::string id = engine_->sessions().Create({})->id;
    const auto session = *engine_->sessions().Find("", id);
    std::thread closer([&] { EXPECT_TRUE(engine_->sessions().Close("", id).ok()); });
    const auto step = Run(session, 1, 0, RandomRows(2, 64, kD), 1, false);
    closer.join();
    EXPECT_TRUE(step->Outcome().ok() || ReasonOf(step->Outcome()) == Reason::kSessionClosed);
  }
  engine_->Stop();
  EXPECT_EQ(engine_->stats().pool.used_bytes, PerKind{});
}

TEST_F(EngineThreadsTest, StopAnswersWhatIsQueued) {
  std::atomic<int> done{0};
  for (int i = 0; i < 40; ++i) {
    auto step = std::make_unique<Step>();
    SequenceStep part;
    part.session = *engine_->sessions().Find("", engine_->sessions().Create({})->id);
    part.rows = 100;
    step->sequences.push_back(part);
    step->hidden = RandomRows(3, 100, kD);
    step->done = [&](std::unique_ptr<Step>) { ++done; };
    ASSERT_TRUE(engine_->Enqueue(&step).ok());
  }
  engine_->Stop();
  EXPECT_EQ(done.load(), 40);
}

}  // namespace
}  // namespace attnd
