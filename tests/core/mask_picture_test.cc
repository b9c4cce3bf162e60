#include "core/mask_picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_split.h"

namespace attnd {
namespace {

using ::testing::HasSubstr;

TEST(MaskPicture, GlobalLayer) {
  EXPECT_EQ(MaskPicture(LayerKind::kGlobal, 10, 4, 4).value(),
            R"(                    Global layer (full causal)
Position:  0  1  2  3  4  5  6  7  8  9
    0:     █  █  █  █  ·  ·  ·  ·  ·  ·   ← prefix bidir
    1:     █  █  █  █  ·  ·  ·  ·  ·  ·
    2:     █  █  █  █  ·  ·  ·  ·  ·  ·
    3:     █  █  █  █  ·  ·  ·  ·  ·  ·
    4:     █  █  █  █  █  ·  ·  ·  ·  ·   ← full causal
    5:     █  █  █  █  █  █  ·  ·  ·  ·
    6:     █  █  █  █  █  █  █  ·  ·  ·
    7:     █  █  █  █  █  █  █  █  ·  ·
    8:     █  █  █  █  █  █  █  █  █  ·
    9:     █  █  █  █  █  █  █  █  █  █
)");
}

TEST(MaskPicture, LocalLayer) {
  EXPECT_EQ(MaskPicture(LayerKind::kLocal, 10, 4, 4).value(),
            R"(                    Local layer (window=4)
Position:  0  1  2  3  4  5  6  7  8  9
    0:     █  █  █  █  ·  ·  ·  ·  ·  ·   ← prefix bidir
    1:     █  █  █  █  ·  ·  ·  ·  ·  ·
    2:     █  █  █  █  ·  ·  ·  ·  ·  ·
    3:     █  █  █  █  ·  ·  ·  ·  ·  ·
    4:     ·  █  █  █  █  ·  ·  ·  ·  ·   ← window only
    5:     ·  ·  █  █  █  █  ·  ·  ·  ·
    6:     ·  ·  ·  █  █  █  █  ·  ·  ·
    7:     ·  ·  ·  ·  █  █  █  █  ·  ·
    8:     ·  ·  ·  ·  ·  █  █  █  █  ·
    9:     ·  ·  ·  ·  ·  ·  █  █  █  █
)");
}

TEST(MaskPicture, PrefixLongerThanWindowAndThanThePicture) {
  EXPECT_EQ(MaskPicture(LayerKind::kLocal, 4, 3, 1).value(),
            R"(                    Local layer (window=1)
Position:  0  1  2  3
    0:     █  █  █  ·   ← prefix bidir
    1:     █  █  █  ·
    2:     █  █  █  ·
    3:     ·  ·  ·  █   ← window only
)");
  EXPECT_THAT(MaskPicture(LayerKind::kLocal, 2, 9, 1).value(), HasSubstr("    1:     █  █\n"));
  EXPECT_THAT(MaskPicture(LayerKind::kGlobal, 1, 0, 1).value(),
              HasSubstr("    0:     █   ← full causal\n"));
}

TEST(MaskPicture, ColumnsOfLongPicturesStayApart) {
  const std::string text = MaskPicture(LayerKind::kGlobal, 1024, 0, 1).value();
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  ASSERT_EQ(lines.size(), 1027u);  // title, positions, rows, and what follows the last '\n'
  EXPECT_THAT(lines[1], HasSubstr("  999 1000 1001"));
  EXPECT_EQ(lines[1].size(), 9u + 1024 * 5);
  EXPECT_EQ(lines[1025].size(), 9u + 1024 * (4 + std::string("█").size()));
}

TEST(MaskPicture, RefusesOtherSizesByName) {
  const auto message = [](int64_t length, int64_t prefix, int64_t window) {
    return std::string(MaskPicture(LayerKind::kLocal, length, prefix, window).status().message());
  };
  EXPECT_EQ(message(0, 0, 1), "len is 0; expected 1 to 1024");
  EXPECT_EQ(message(1025, 0, 1), "len is 1025; expected 1 to 1024");
  EXPECT_EQ(message(4, -1, 1), "prefix is -1; expected 0 or more");
  EXPECT_EQ(message(4, 0, 0), "window is 0; expected 1 or more");
}

}  // namespace
}  // namespace attnd
