// What a server says does not steer the operator's terminal.
#include "client/attnctl/shown.h"

#include <gtest/gtest.h>

#include "client/attnctl/table.h"

namespace attnd::attnctl {
namespace {

TEST(Shown, ControlCharactersBecomeBytes) {
  EXPECT_EQ(Shown("plain, größe"), "plain, größe");
  EXPECT_EQ(Shown("\033]0;x\a\r\n"), "\\x1b]0;x\\x07\\x0d\\x0a");
  EXPECT_EQ(Shown("\xC2\x9B"), "\\xc2\\x9b");
  EXPECT_EQ(Shown("a\xE2\x80\xAE"
                  "b\xE2\x81\xA9"),
            "a\\xe2\\x80\\xaeb\\xe2\\x81\\xa9");
  EXPECT_EQ(Shown("\xE2\x80"), "\\xe2\\x80");
}

TEST(Shown, PrintableTextStaysAsItIs) {
  EXPECT_EQ(Shown("a\\x00b"), "a\\x00b");
  EXPECT_EQ(Shown(Shown("\033\\")), "\\x1b\\");
  EXPECT_EQ(Shown(std::string(5000, 'a')).size(), 5000U);
}

TEST(Shown, CellsAndItemsAreShown) {
  Table table({"name", "n"});
  table.Row({"\033[2J", "1"});
  EXPECT_EQ(table.ToString().find('\033'), std::string::npos);
  List list;
  list.Item("device", "\033[2J");
  EXPECT_EQ(list.ToString(), "device  \\x1b[2J\n");
}

}  // namespace
}  // namespace attnd::attnctl
