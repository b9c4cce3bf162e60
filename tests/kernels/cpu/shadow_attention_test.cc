// What is of the shadow alone; that its answers are right is global_attention_test.cc's.
#include <gtest/gtest.h>

#include "tests/kernels/attention_case.h"

namespace attnd::kernels {
namespace {

class ShadowAttentionTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Backend> backend_ = MakeBackend(GetParam(), 2);
};

TEST_P(ShadowAttentionTest, BitsDependNeitherOnTheBatchNorOnHowTheShadowWasFilled) {
  GlobalCase c({32, 2, 16, 8, 24}, DType::kBF16, DType::kF32,
               {RowsOf(1500, 1501, 0, 0), RowsOf(90, 93, 0, 0)}, 900);
  c.Store(*backend_);
  const std::vector<float> whole = c.RunShadow(*backend_);
  EXPECT_EQ(c.RunShadow(*backend_, 1), whole);
  EXPECT_EQ(c.RunShadow(*backend_, 37), whole);
  const std::vector<float> second = c.RunShadow(*backend_, INT64_MAX, 1);
  const auto from = static_cast<int64_t>(32 * 16);  // behind the first sequence's one row
  EXPECT_TRUE(std::equal(second.begin() + from, second.end(), whole.begin() + from));
  const auto alone = MakeBackend(GetParam(), 1);
  EXPECT_EQ(c.RunShadow(*alone), whole);
}

INSTANTIATE_TEST_SUITE_P(Isas, ShadowAttentionTest, ::testing::ValuesIn(CpuIsas()),
                         [](const auto& isa) { return isa.param; });

}  // namespace
}  // namespace attnd::kernels
