// What the engine holds and gives back: a full cache, reservations, and the window's pages.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "core/error.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/test_engine.h"

namespace attnd {
namespace {

constexpr int64_t kWindow = 8;
constexpr int64_t kD = 64;  // APEX-1 tiny
constexpr int64_t kLocal = 0, kGlobal = 1;

std::vector<float> Slice(const std::vector<float>& rows, int64_t begin, int64_t end) {
  return {rows.begin() + begin * kD, rows.begin() + end * kD};
}

TestEngineOptions Options() {
  TestEngineOptions options;
  options.engine.max_rewind = 4;
  options.engine.prefill_chunk_rows = 50;
  options.engine.max_batch_rows = 60;
  return options;
}

class EngineMemoryTest : public testing::Test {
 protected:
  TestEngine engine_{TinyConfig(kWindow, 2), "random:7", Options()};
  const std::vector<float> rows_ = RandomRows(1, 500, kD);
};

TEST_F(EngineMemoryTest, AFullCacheLeavesTheLayerUnchanged) {
  TestEngineOptions options = Options();
  options.engine.kv_cache_bytes = 3 << 20;
  TestEngine small(TinyConfig(kWindow, 2), "random:7", options);
  // A global page is 8 KiB here: 4,096 tokens are half a slab.
  std::vector<std::string> ids;
  absl::Status status;
  while (status.ok() && ids.size() < 100) {
    ids.push_back(small.Create());
    const auto step = small.Run(small.Prefill(ids.back(), kGlobal, 0, RandomRows(5, 2048, kD)));
    status = step->Outcome();
  }
  EXPECT_EQ(ReasonOf(status), Reason::kCacheFull);
  EXPECT_TRUE(RetryAfterMs(status).has_value());
  EXPECT_EQ(ids.size(), 13U) << "three slabs hold 12 times 32 pages";
  EXPECT_EQ(small.Find(ids.back())->Length(kGlobal), 0);
  ASSERT_TRUE(small.engine().sessions().Close("", ids.front()).ok());
  const auto retried = small.Run(small.Prefill(ids.back(), kGlobal, 0, RandomRows(5, 2048, kD)));
  EXPECT_TRUE(retried->Outcome().ok()) << "room again after a close";
  small.engine().pool().Audit();
}

TEST(EngineCreateTest, ReportsWhatCannotBe) {
  const ModelConfig config = TinyConfig(kWindow, 2);
  const auto create = [&](int64_t kv_cache_bytes) {
    const std::unique_ptr<WeightSource> weights = *OpenWeights("random:7", MakeLayerPlan(config));
    EngineOptions options;
    options.kv_cache_bytes = kv_cache_bytes;
    const SystemClock clock;
    return Engine::Create(config, weights.get(), *kernels::MakeCpuBackend({1, "best"}), options,
                          clock, nullptr)
        .status();
  };
  EXPECT_EQ(create(1 << 20).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(create(int64_t{1} << 62).ok()) << "more than can be mapped";
  EXPECT_TRUE(create(3 << 20).ok());
}

// A reserved session decodes to its last token while others are refused.
TEST_F(EngineMemoryTest, AReservationIsKept) {
  TestEngineOptions options = Options();
  options.engine.kv_cache_bytes = 4 << 20;
  TestEngine small(TinyConfig(kWindow, 2), "random:7", options);
  const std::string reserved = small.Create(30, 1500);
  EXPECT_GT(small.engine().sessions().Get("", reserved)->reserved_bytes, 0);
  for (int64_t layer : {kLocal, kGlobal}) {
    absl::Status status;
    for (int i = 0; i < 2000 && status.ok(); ++i) {
      status =
          small.Run(small.Prefill(small.Create(), layer, 0, RandomRows(5, 100, kD)))->Outcome();
    }
    EXPECT_EQ(ReasonOf(status), Reason::kCacheFull);
  }
  const std::vector<float> rows = RandomRows(6, 1500, kD);
  for (int64_t layer : {kLocal, kGlobal}) {
    int64_t at = 0;
    for (int64_t n : {29, 500, 971}) {
      for (bool repeat : {false, true}) {
        auto step = small.Prefill(reserved, layer, at, Slice(rows, at, at + n));
        step->sequences[0].rewind = repeat;
        step = small.Run(std::move(step));
        ASSERT_TRUE(step->Outcome().ok()) << step->Outcome() << " at " << at;
      }
      at += n;
    }
  }
  small.engine().pool().Audit();
}

TEST_F(EngineMemoryTest, ALocalLayerHoldsItsWindowHoweverLongTheSession) {
  const std::string id = engine_.Create();
  std::vector<float> row = Slice(rows_, 0, 1);
  const int64_t page = engine_.engine().pool().page_bytes(PageKind::kLocal);
  for (int64_t i = 0; i < 500; ++i) {
    ASSERT_TRUE(
        engine_.Run(engine_.Decode({id}, kLocal, {i}, Slice(rows_, i, i + 1)))->Outcome().ok());
    EXPECT_LE(engine_.engine().sessions().Get("", id)->cache_bytes, 2 * page);
    EXPECT_EQ(engine_.engine().stats().store.tokens_local, std::min<int64_t>(i + 1, kWindow + 4));
  }
}

int64_t RssBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0, resident = 0;
  statm >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// As a server does that starts anew with other weights.
TEST(EngineEndTest, AnEngineLeavesNoMemoryBehindThoughSessionsAreOpen) {
  // 34 MB of latents; the hidden rows, which a sanitizer does not give back at once, are 2.
  constexpr int64_t kRows = 1000, kSessions = 8;
  int64_t before = 0;
  for (int round = 0; round < 3; ++round) {
    TestEngineOptions options = Options();
    options.engine.prefill_chunk_rows = 512;
    options.engine.max_batch_rows = 512;
    ModelConfig config = TinyConfig(kWindow, 2);
    config.d_kv_compressed = 1024;
    TestEngine engine(config, "random:" + std::to_string(round + 1), options);
    for (int64_t i = 0; i < kSessions; ++i) {
      // Rows of a prefix that is not complete are kept and not computed.
      const std::string id = engine.Create(kRows + 1);
      ASSERT_TRUE(
          engine.Run(engine.Prefill(id, kGlobal, 0, RandomRows(5, kRows, kD)))->Outcome().ok());
    }
    EXPECT_GT(engine.engine().stats().pool.used_bytes[Index(PageKind::kGlobal)], 30 << 20);
    if (round == 0) {
      before = RssBytes();  // all that one engine needs
    }
  }
  EXPECT_LT(RssBytes() - before, 24 << 20) << "bytes are left of engines with open sessions";
}

}  // namespace
}  // namespace attnd
