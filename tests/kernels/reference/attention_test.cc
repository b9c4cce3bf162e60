#include "kernels/reference/attention.h"

#include <gtest/gtest.h>

#include <cmath>

namespace attnd::kernels {
namespace {

// The worked example of the APEX-1 document, section 6.4: [[3.000, 4.000], [3.407, 4.407]].
TEST(ReferenceAttentionTest, TheWorkedExample) {
  const double q[] = {1, 0, 0, 1};
  const double k[] = {1, 0, 0, 1, 1, 1};
  const double v[] = {1, 2, 3, 4, 5, 6};
  const ReferenceHead head{2, 2, 1 / std::sqrt(2.0), q, 2, k, 2, v, 2};
  const std::vector<double> first = ReferenceAttend(head, 0, {0, 3});
  EXPECT_NEAR(first[0], 3.000, 5e-4);
  EXPECT_NEAR(first[1], 4.000, 5e-4);
  const std::vector<double> second = ReferenceAttend(head, 1, {0, 3});
  EXPECT_NEAR(second[0], 3.407, 5e-4);
  EXPECT_NEAR(second[1], 4.407, 5e-4);
}

TEST(ReferenceAttentionTest, NothingVisibleGivesZeroAndOneKeyItsValue) {
  const double q[] = {3};
  const double k[] = {1, 1000};
  const double v[] = {5, 7};
  const ReferenceHead head{1, 1, 1, q, 1, k, 1, v, 1};
  EXPECT_EQ(ReferenceAttend(head, 0, {1, 1})[0], 0);
  EXPECT_EQ(ReferenceAttend(head, 0, {0, 1})[0], 5);
  EXPECT_EQ(ReferenceAttend(head, 0, {0, 2})[0], 7) << "the maximum is subtracted";
}

// The picture of a prefix of 4 and a window of 4, ten rows: # sees, . does not.
TEST(ReferenceAttentionTest, WhoSeesWhom) {
  const char* local[] = {"####......", "####......", "####......", "####......", ".####.....",
                         "..####....", "...####...", "....####..", ".....####.", "......####"};
  for (int64_t row = 0; row < 10; ++row) {
    const ReferenceInterval seen = ReferenceVisible(row, 4, 4);
    const ReferenceInterval global = ReferenceVisible(row, 4, 0);
    for (int64_t key = 0; key < 10; ++key) {
      EXPECT_EQ(seen.lo <= key && key < seen.hi, local[row][key] == '#') << row << " " << key;
      EXPECT_EQ(global.lo <= key && key < global.hi, row < 4 ? key < 4 : key <= row);
    }
  }
}

}  // namespace
}  // namespace attnd::kernels
