// The rules of cutting a layer, on caches without pages.
#include "core/layer_cache.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace attnd {
namespace {

LayerRules Local(int64_t prefix = 0) { return {LayerKind::kLocal, 10, 4, prefix}; }
LayerRules Global(int64_t prefix = 0) { return {LayerKind::kGlobal, 0, 4, prefix}; }

LayerCache Cache(int64_t length, int64_t first, int64_t last_step_start) {
  LayerCache cache;
  cache.length = length;
  cache.first = first;
  cache.last_step_start = last_step_start;
  return cache;
}

TEST(LayerCacheTest, NothingDroppedAnyCutIsAccepted) {
  for (int64_t position = 0; position <= 14; ++position) {
    EXPECT_TRUE(CheckCut(Cache(14, 0, 13), Local(), position).ok());
  }
  EXPECT_EQ(RewindFloor(Cache(14, 0, 13), Local()), 0);
}

TEST(LayerCacheTest, AfterDroppingTheWindowBeforeACutMustBeWhole) {
  const LayerCache cache = Cache(30, 16, 29);
  EXPECT_EQ(ReasonOf(CheckCut(cache, Local(), 25)), Reason::kRewindTooFar);
  EXPECT_TRUE(CheckCut(cache, Local(), 26).ok());
  EXPECT_TRUE(CheckCut(cache, Local(), 0).ok());
  EXPECT_EQ(RewindFloor(cache, Local()), 26);
}

TEST(LayerCacheTest, TheLastStepsStartIsAcceptedHoweverFarBack) {
  EXPECT_TRUE(CheckCut(Cache(900, 886, 5), Local(), 5).ok());
  EXPECT_EQ(ReasonOf(CheckCut(Cache(900, 886, 5), Local(), 6)), Reason::kRewindTooFar);
}

TEST(LayerCacheTest, AnAnsweredPrefixIsCutToZeroOrRepeated) {
  for (const LayerRules& rules : {Local(20), Global(20)}) {
    EXPECT_EQ(ReasonOf(CheckCut(Cache(24, 0, 22), rules, 19)), Reason::kPrefixAnswered);
    EXPECT_TRUE(CheckCut(Cache(24, 0, 22), rules, 20).ok());
    EXPECT_TRUE(CheckCut(Cache(24, 0, 22), rules, 0).ok());
    EXPECT_TRUE(CheckCut(Cache(24, 0, 7), rules, 7).ok()) << "the step that completed it";
    EXPECT_TRUE(CheckCut(Cache(19, 0, 7), rules, 11).ok()) << "not answered yet";
    EXPECT_EQ(RewindFloor(Cache(24, 0, 22), rules), 20);
    EXPECT_EQ(RewindFloor(Cache(19, 0, 7), rules), 0);
  }
}

TEST(LayerCacheTest, ACutNeverLowersFirstButACutToZeroStartsAnew) {
  LayerCache cache = Cache(30, 16, 29);
  Cut(&cache, Local(), 27);
  EXPECT_EQ(cache.length, 27);
  EXPECT_EQ(cache.first, 16);
  EXPECT_EQ(cache.last_step_start, -1) << "the step that began at 29 is gone";
  Cut(&cache, Local(), 0);
  EXPECT_EQ(cache.first, 0);
  EXPECT_EQ(cache.last_step_start, 0);
}

}  // namespace
}  // namespace attnd
