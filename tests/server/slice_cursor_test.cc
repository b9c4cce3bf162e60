// Bytes in pieces, empty ones among them.
#include "server/slice_cursor.h"

#include <cstdint>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnd::server {
namespace {

using ::testing::ElementsAre;

TEST(SliceCursorTest, ReadsAcrossPieces) {
  const std::vector<std::string_view> pieces = {"", "ab", "", "c", "defg", ""};
  SliceCursor cursor(pieces);
  EXPECT_EQ(cursor.left(), 7U);
  uint8_t byte = 0;
  ASSERT_TRUE(cursor.ReadByte(&byte));
  EXPECT_EQ(byte, 'a');
  std::string copy;
  ASSERT_TRUE(cursor.Copy(3, &copy));
  EXPECT_EQ(copy, "bcd");
  std::vector<std::string_view> views;
  ASSERT_TRUE(cursor.Point(3, &views));
  EXPECT_THAT(views, ElementsAre("efg"));
  EXPECT_EQ(views[0].data(), pieces[4].data() + 1);
  EXPECT_EQ(cursor.left(), 0U);
  EXPECT_FALSE(cursor.ReadByte(&byte));
  EXPECT_TRUE(cursor.Copy(0, &copy));
  EXPECT_TRUE(cursor.Point(0, &views));
}

TEST(SliceCursorTest, ViewsOfSeveralPieces) {
  const std::vector<std::string_view> pieces = {"abc", "", "d", "efg"};
  SliceCursor cursor(pieces);
  std::string copy;
  ASSERT_TRUE(cursor.Copy(1, &copy));
  std::vector<std::string_view> views;
  ASSERT_TRUE(cursor.Point(4, &views));
  EXPECT_THAT(views, ElementsAre("bc", "d", "e"));
}

TEST(SliceCursorTest, RefusesMoreThanThereIs) {
  const std::vector<std::string_view> pieces = {"ab"};
  SliceCursor cursor(pieces);
  std::string copy;
  std::vector<std::string_view> views;
  EXPECT_FALSE(cursor.Copy(3, &copy));
  EXPECT_FALSE(cursor.Point(SIZE_MAX, &views));
  EXPECT_EQ(copy, "");
  EXPECT_TRUE(views.empty());
}

TEST(SliceCursorTest, Varints) {
  const struct {
    std::string bytes;
    bool ok;
    uint64_t value;
  } cases[] = {
      {std::string("\x00", 1), true, 0},
      {"\x7f", true, 127},
      {"\xac\x02", true, 300},
      {std::string("\x85\x80\x00", 3), true, 5},  // longer than need be
      {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", true, UINT64_MAX},
      {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", false, 0},
      {"\x80", false, 0},
      {"", false, 0},
  };
  for (const auto& c : cases) {
    std::vector<std::string_view> pieces;
    for (const char& byte : c.bytes) {
      pieces.emplace_back(&byte, 1);
    }
    SliceCursor cursor(pieces);
    uint64_t value = 0;
    std::string raw;
    EXPECT_EQ(cursor.ReadVarint(&value, &raw), c.ok) << c.bytes;
    if (c.ok) {
      EXPECT_EQ(value, c.value);
      EXPECT_EQ(raw, c.bytes);
    }
  }
}

}  // namespace
}  // namespace attnd::server
