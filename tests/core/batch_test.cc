// Which parts form the next batch.
#include "core/batch.h"

#include <gtest/gtest.h>

namespace attnd {
namespace {

using Picked = std::vector<size_t>;

TEST(BatchTest, NothingWaitsNothingRuns) { EXPECT_EQ(FormBatch({}, 10), Picked{}); }

TEST(BatchTest, TakesTheLayerOfTheFirstInTurn) {
  EXPECT_EQ(FormBatch({{3, 5, 0, 1}, {1, 4, 1, 1}, {3, 6, 2, 1}, {1, 9, 3, 1}}, 10),
            (Picked{1, 3}));
}

TEST(BatchTest, AcceptanceBreaksTies) {
  EXPECT_EQ(FormBatch({{2, 7, 9, 1}, {1, 7, 8, 1}}, 10), Picked{1});
}

TEST(BatchTest, OrdersByTurnThenAcceptance) {
  EXPECT_EQ(FormBatch({{0, 2, 0, 1}, {0, 1, 3, 1}, {0, 1, 2, 1}}, 10), (Picked{2, 1, 0}));
}

TEST(BatchTest, StopsAtMaxRowsAndFillsWithSmallerOnes) {
  EXPECT_EQ(FormBatch({{0, 0, 0, 6}, {0, 1, 1, 5}, {0, 2, 2, 4}, {0, 3, 3, 1}}, 10),
            (Picked{0, 2}));
}

TEST(BatchTest, TheFirstRunsWhateverItsSize) {
  EXPECT_EQ(FormBatch({{0, 0, 0, 100}, {0, 1, 1, 1}}, 10), Picked{0});
}

TEST(BatchTest, ARewindRunsWithoutSteps) {
  EXPECT_EQ(FormBatch({{kAllLayers, 0, 0, 0}, {0, 1, 1, 1}, {kAllLayers, 2, 2, 0}}, 10),
            (Picked{0, 2}));
}

}  // namespace
}  // namespace attnd
