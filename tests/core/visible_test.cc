#include "core/visible.h"

#include <gtest/gtest.h>

namespace attnd {
namespace {

// The rule as it is written: who sees whom, key by key.
bool Sees(LayerKind kind, int64_t i, int64_t j, int64_t prefix, int64_t window) {
  if (i < prefix) {
    return j < prefix;
  }
  return j <= i && (kind == LayerKind::kGlobal || i - j < window);
}

TEST(Visible, IntervalsAreTheRuleForEveryPrefixAndWindow) {
  constexpr int64_t kLength = 24;
  for (const LayerKind kind : {LayerKind::kLocal, LayerKind::kGlobal}) {
    for (int64_t prefix = 0; prefix <= kLength; ++prefix) {
      for (int64_t window = 1; window <= kLength + 1; ++window) {
        for (int64_t i = 0; i < kLength; ++i) {
          const Interval seen = Visible(kind, i, prefix, window);
          for (int64_t j = 0; j < kLength; ++j) {
            ASSERT_EQ(j >= seen.lo && j < seen.hi, Sees(kind, i, j, prefix, window))
                << LayerKindName(kind) << " i=" << i << " j=" << j << " P=" << prefix
                << " W=" << window;
          }
          ASSERT_TRUE(seen.lo <= i && i < seen.hi) << "every row sees itself";
        }
      }
    }
  }
}

TEST(Visible, WindowsOfAnySizeDoNotWrap) {
  EXPECT_EQ(Visible(LayerKind::kLocal, 5, 0, int64_t{1} << 31), (Interval{0, 6}));
  EXPECT_EQ(Visible(LayerKind::kLocal, (int64_t{1} << 24) - 1, 3, 1),
            (Interval{(int64_t{1} << 24) - 1, int64_t{1} << 24}));
}

}  // namespace
}  // namespace attnd
