// The policy of shadows alone: who gets pages, who gives way, and what is decompressed when.
#include "core/mla_shadow.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "kernels/cpu/cpu_backend.h"

namespace attnd {
namespace {

constexpr int64_t kPageBytes = 4096, kPages = 20;

class MlaShadowTest : public testing::Test {
 protected:
  // A batch with one decode of `rows` rows, committed unless it `fails`; true if it reached its
  // end.
  bool Decode(LayerShadow* shadow, int64_t position, int64_t rows = 1, bool fails = false) {
    store_.BeginBatch();
    return Part(shadow, position, rows, fails);
  }
  bool Part(LayerShadow* shadow, int64_t position, int64_t rows = 1, bool fails = false) {
    fill_ = store_.Plan(shadow, {position, position, position + rows});
    if (!fails) {
      ShadowStore::Commit(shadow);
    }
    return fill_.end >= position + rows;
  }
  // Decodes one row at a time from `position` on until a decode reaches its end; the next position.
  int64_t Heat(LayerShadow* shadow, int64_t position) {
    for (int i = 0; i < 100; ++i) {
      if (Decode(shadow, position++)) {
        return position;
      }
    }
    return -1;
  }
  int64_t UsedPages() const { return store_.used_bytes() / kPageBytes; }

  std::unique_ptr<kernels::Backend> backend_ = *kernels::MakeCpuBackend({1, "best"});
  std::unique_ptr<kernels::DeviceMemory> memory_ =
      *backend_->Allocate("shadows of a test", kPages* kPageBytes + 100);
  ShadowStore store_{memory_.get(), kPageBytes};
  ShadowFill fill_;
};

TEST_F(MlaShadowTest, ALayerIsHotAfterDecodesInARow) {
  LayerShadow shadow(&store_);
  for (int64_t i = 1; i < kHotDecodes; ++i) {
    EXPECT_FALSE(Decode(&shadow, 99 + i));
  }
  ShadowStore::Cool(&shadow);
  for (int64_t i = 1; i < kHotDecodes; ++i) {
    EXPECT_FALSE(Decode(&shadow, 199 + i));
    EXPECT_EQ(UsedPages(), 0);
  }
  EXPECT_TRUE(Decode(&shadow, 300));
  EXPECT_EQ(fill_.begin, 0);
  EXPECT_EQ(UsedPages(), 5);
  EXPECT_TRUE(Decode(&shadow, 301, 30));
  EXPECT_EQ(fill_.begin, 301) << "only the new rows";
  EXPECT_EQ(UsedPages(), 6);
}

TEST_F(MlaShadowTest, ALongHistoryIsDecompressedOverSeveralBatches) {
  LayerShadow shadow(&store_);
  int64_t position = 1100;
  for (int64_t i = 1; i < kHotDecodes; ++i) {
    EXPECT_FALSE(Decode(&shadow, position++));
  }
  EXPECT_FALSE(Decode(&shadow, position++));
  EXPECT_EQ(fill_.end, kShadowFillRows);
  EXPECT_FALSE(Decode(&shadow, position++));
  EXPECT_TRUE(Decode(&shadow, position)) << "the rest";
  EXPECT_EQ(fill_.begin, 2 * kShadowFillRows);
  EXPECT_EQ(shadow.rows(), position + 1);
}

TEST_F(MlaShadowTest, TheSessionsOfABatchShareWhatIsDecompressedInIt) {
  LayerShadow a(&store_), b(&store_);
  for (int64_t i = 0; i < kHotDecodes; ++i) {
    store_.BeginBatch();
    Part(&a, 400 + i);
    Part(&b, 400 + i);
  }
  EXPECT_EQ(a.rows(), 400 + kHotDecodes);
  EXPECT_EQ(b.rows(), kShadowFillRows - (400 + kHotDecodes - 1));
}

TEST_F(MlaShadowTest, AFailedStepLeavesTheHistoryBehindIt) {
  LayerShadow shadow(&store_);
  int64_t position = Heat(&shadow, 100);
  EXPECT_EQ(shadow.rows(), position);
  EXPECT_TRUE(Decode(&shadow, position, 3, /*fails=*/true));
  EXPECT_EQ(shadow.rows(), position);
  EXPECT_TRUE(Decode(&shadow, position, 2));
  EXPECT_EQ(fill_.begin, position) << "what the failed step wrote is written again";
  shadow.Cut(65);
  EXPECT_EQ(shadow.rows(), 65);
  EXPECT_EQ(UsedPages(), 2);
  EXPECT_TRUE(Decode(&shadow, 65));
  EXPECT_EQ(fill_.begin, 65);
  shadow.Cut(0);
  EXPECT_EQ(UsedPages(), 0);
}

TEST_F(MlaShadowTest, AChunkThatLostItsPagesStartsAgain) {
  LayerShadow shadow(&store_);
  const int64_t position = Heat(&shadow, 100);
  store_.BeginBatch();
  store_.Plan(&shadow, {position, position, position + 10});
  shadow.Cut(0);
  store_.BeginBatch();
  const ShadowFill fill = store_.Plan(&shadow, {position, position + 10, position + 20});
  EXPECT_EQ(fill.begin, 0);
  EXPECT_EQ(fill.end, position + 20);
  EXPECT_EQ(shadow.rows(), position) << "the running step's rows are not the layer's yet";
}

TEST_F(MlaShadowTest, AnIdleShadowGivesWayAndABusyOneDoesNot) {
  auto idle = std::make_unique<LayerShadow>(&store_);
  LayerShadow busy(&store_), late(&store_);
  ASSERT_GT(Heat(idle.get(), 12 * 64 - 20), 0);
  int64_t at = Heat(&busy, 6 * 64 - 20);
  EXPECT_EQ(UsedPages(), 18);
  int64_t reached = 0;
  for (int64_t i = 0; i < 2 * kHotDecodes; ++i) {
    EXPECT_TRUE(Decode(&busy, at++)) << i;
    reached += Decode(&late, 5 * 64 + i) ? 1 : 0;
  }
  EXPECT_GT(reached, 0);
  EXPECT_TRUE(idle->pages().empty());
  EXPECT_EQ(idle->rows(), 0);
  // Now both are busy, and a third that wants more than is left stays as it is.
  LayerShadow third(&store_);
  int64_t of_late = 5 * 64 + 2 * kHotDecodes;
  for (int64_t i = 0; i < 3 * kHotDecodes; ++i) {
    EXPECT_TRUE(Decode(&busy, at++));
    EXPECT_TRUE(Decode(&late, of_late++));
    EXPECT_FALSE(Decode(&third, 10 * 64 + i));
  }
  EXPECT_TRUE(third.pages().empty());
  idle.reset();
}

TEST_F(MlaShadowTest, AShadowThatCannotGrowEndsAndOneThatNeverFitsTakesNothing) {
  LayerShadow shadow(&store_);
  const int64_t position = Heat(&shadow, kPages * 64 - 8 - kHotDecodes);
  EXPECT_TRUE(Decode(&shadow, position, kPages * 64 - position));
  EXPECT_EQ(UsedPages(), kPages);
  EXPECT_FALSE(Decode(&shadow, kPages * 64));
  EXPECT_EQ(UsedPages(), 0);
  LayerShadow small(&store_);
  Heat(&small, 10);
  for (int64_t i = 1; i < 3 * kHotDecodes; ++i) {
    EXPECT_FALSE(Decode(&shadow, kPages * 64 + i));
  }
  EXPECT_EQ(UsedPages(), 1) << "an idle shadow is not pushed out in vain";
}

}  // namespace
}  // namespace attnd
