// How steps are cut into chunks, what they answer, and the pages that they take.
#include "core/step_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/visible.h"
#include "tests/support/test_engine.h"

namespace attnd {
namespace {

constexpr ChunkLimits kLimits{100, 1e18};

class StepPlanTest : public testing::Test {
 protected:
  StepPlan Plan(LayerKind kind, int64_t prefix, const StepShape& step,
                const ChunkLimits& limits = kLimits) const {
    return PlanStep(layers_, {kind, kind == LayerKind::kLocal ? 64 : 0, 16, prefix}, step, limits);
  }
  LayerPlan layers_ = MakeLayerPlan(TinyConfig(64, 2));
};

TEST_F(StepPlanTest, AppendsAndAnswersInChunks) {
  const StepPlan plan = Plan(LayerKind::kGlobal, 0, {10, 250, OutputRows::kAll});
  ASSERT_EQ(plan.chunks.size(), 3U);
  EXPECT_EQ(plan.chunks[1].append_begin, 110);
  EXPECT_EQ(plan.chunks[1].query_end, 210);
  EXPECT_EQ(plan.chunks[2].rows(), 50);
  EXPECT_EQ(plan.output_position, 10);
  EXPECT_EQ(plan.output_rows, 250);
  EXPECT_EQ(plan.main_pages, 4);  // tokens up to 260 need 5 pages, one is there
}

TEST_F(StepPlanTest, CostBoundsAChunkToo) {
  const int64_t late = 1'000'000;
  const StepPlan plan = Plan(LayerKind::kGlobal, 0, {late, 100, OutputRows::kAll}, {100, 1.0});
  EXPECT_EQ(plan.chunks.size(), 100U) << "a chunk has a row at least";
}

TEST_F(StepPlanTest, AChunkIsWorthItsWeights) {
  const double low = 1.0;
  const StepPlan early = Plan(LayerKind::kLocal, 0, {0, 96, OutputRows::kAll}, {100, low});
  EXPECT_EQ(early.chunks[0].rows(), 48) << "the cost of 48 first rows is always allowed";
  EXPECT_EQ(Plan(LayerKind::kLocal, 0, {0, 96, OutputRows::kAll}, {10, low}).chunks[0].rows(), 10)
      << "the rows are bounded all the same";
}

TEST_F(StepPlanTest, OutputRowsSpareQueries) {
  const StepPlan last = Plan(LayerKind::kLocal, 0, {0, 250, OutputRows::kLast});
  EXPECT_EQ(last.output_position, 249);
  EXPECT_EQ(last.output_rows, 1);
  EXPECT_EQ(last.chunks[0].query_begin, last.chunks[0].query_end);
  EXPECT_EQ(last.chunks[2].query_begin, 249);
  const StepPlan none = Plan(LayerKind::kLocal, 0, {7, 20, OutputRows::kNone});
  EXPECT_EQ(none.output_rows, 0);
  EXPECT_EQ(none.output_position, 7) << "the request's position when there is no row";
}

TEST_F(StepPlanTest, HoldsBackPrefixRowsUntilTheLast) {
  const StepPlan part = Plan(LayerKind::kLocal, 150, {0, 149, OutputRows::kAll});
  EXPECT_EQ(part.output_rows, 0);
  EXPECT_FALSE(part.completes_prefix);
  EXPECT_EQ(part.held_pages, 10);
  const StepPlan rest = Plan(LayerKind::kLocal, 150, {149, 1, OutputRows::kAll});
  EXPECT_TRUE(rest.completes_prefix);
  EXPECT_EQ(rest.output_position, 0);
  EXPECT_EQ(rest.output_rows, 150);
  EXPECT_EQ(rest.held_pages, 0);
  ASSERT_EQ(rest.chunks.size(), 3U);
  EXPECT_EQ(rest.chunks[0].append_end, 150);
  EXPECT_EQ(rest.chunks[0].query_begin, rest.chunks[0].query_end);
  EXPECT_EQ(rest.chunks[1].query_begin, 0);
  EXPECT_EQ(rest.chunks[2].query_end, 150);
}

TEST_F(StepPlanTest, LastRowOfACompletingStep) {
  const StepPlan at = Plan(LayerKind::kLocal, 50, {0, 50, OutputRows::kLast});
  EXPECT_EQ(at.output_position, 49);
  EXPECT_EQ(at.output_rows, 1);
  const StepPlan beyond = Plan(LayerKind::kLocal, 50, {0, 60, OutputRows::kLast});
  EXPECT_EQ(beyond.output_position, 59);
  int64_t queries = 0;
  for (const Chunk& chunk : beyond.chunks) {
    queries += chunk.query_end - chunk.query_begin;
  }
  EXPECT_EQ(queries, 1);
}

TEST_F(StepPlanTest, ALocalLayerTakesPagesForItsWindowNotForTheStep) {
  const StepPlan plan = Plan(LayerKind::kLocal, 0, {0, 4000, OutputRows::kAll});
  EXPECT_LE(plan.main_pages, (64 + 16 + 100) / 64 + 2);
  EXPECT_EQ(Plan(LayerKind::kGlobal, 0, {0, 4000, OutputRows::kAll}).main_pages, 63);
}

// For any step: every row is appended once, in order, and answered as AnsweredRows() says; what
// a row sees has been appended and not let go of.
TEST_F(StepPlanTest, EveryRowFindsItsKeys) {
  for (LayerKind kind : {LayerKind::kLocal, LayerKind::kGlobal}) {
    for (int64_t prefix : {0, 1, 30, 64, 100, 300}) {
      for (int64_t position : {0, 1, 29, 63, 64, 99, 150, 299, 300}) {
        for (int64_t rows : {1, 2, 64, 99, 100, 101, 350}) {
          const StepShape step{position, rows, OutputRows::kAll};
          const StepPlan plan = Plan(kind, prefix, step);
          int64_t appended = position, answered = plan.output_position, kept = 0;
          for (const Chunk& chunk : plan.chunks) {
            if (chunk.append_begin < chunk.append_end) {
              EXPECT_EQ(chunk.append_begin, appended);
              appended = chunk.append_end;
            }
            kept = std::max(kept, chunk.keep_from);
            for (int64_t row = chunk.query_begin; row < chunk.query_end; ++row) {
              const Interval visible = Visible(kind, row, prefix, 64);
              EXPECT_EQ(row, answered++);
              EXPECT_LE(kept, visible.lo);
              EXPECT_GE(appended, visible.hi);
            }
            EXPECT_LE(chunk.rows(), kLimits.max_rows);
          }
          EXPECT_EQ(appended, step.end());
          EXPECT_EQ(answered - plan.output_position, AnsweredRows(step, prefix));
        }
      }
    }
  }
}

}  // namespace
}  // namespace attnd
