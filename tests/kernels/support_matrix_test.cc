#include "kernels/support_matrix.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace attnd::kernels {
namespace {

TEST(SupportMatrixTest, TheCpuTakesEveryDtype) {
  for (const DType weight : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const DType cache : {DType::kF32, DType::kBF16, DType::kF16, DType::kInt8}) {
      EXPECT_EQ(Unsupported("cpu", weight, cache), "");
    }
  }
  EXPECT_EQ(Unsupported("cpu", DType::kInt8, DType::kInt8),
            "weight dtype int8 is not supported on cpu; supported: f32, bf16, f16");
}

TEST(SupportMatrixTest, AnUnknownDeviceIsNamedWithTheKnownOnes) {
  EXPECT_EQ(FindDevice("abacus"), nullptr);
  EXPECT_EQ(Unsupported("abacus", DType::kF32, DType::kF32)
                .find("device abacus is not in this build; supported: cpu"),
            0U);
}

TEST(SupportMatrixTest, TheReadmeHasTheTable) {
  std::ifstream file(ATTND_KERNELS_README);
  std::stringstream readme;
  readme << file.rdbuf();
  for (const SupportRow& row : SupportMatrix()) {
    EXPECT_NE(readme.str().find(SupportMatrixMarkdown()), std::string::npos)
        << row.device << " should be documented as\n"
        << SupportMatrixMarkdown();
  }
}

}  // namespace
}  // namespace attnd::kernels
