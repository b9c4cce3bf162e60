#include "client/attnctl/progress_bar.h"

#include <gtest/gtest.h>

namespace attnd::attnctl {
namespace {

TEST(ProgressLine, SaysHowFarAndHowFast) {
  EXPECT_EQ(ProgressLine("export", 1 << 20, 4 << 20, 2),
            "export [#######                       ]  25 %  1 MiB of 4 MiB, 512 KiB/s");
  EXPECT_EQ(ProgressLine("move", 0, 0, 0),
            "move [##############################] 100 %  0 B of 0 B");
}

}  // namespace
}  // namespace attnd::attnctl
