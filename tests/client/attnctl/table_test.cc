// Columns line up.
#include "client/attnctl/table.h"

#include <gtest/gtest.h>

namespace attnd::attnctl {
namespace {

TEST(Table, FirstColumnLeftTheOthersRight) {
  Table table({"name", "n"});
  table.Row({"a", "1,000"});
  table.Row({"longer", ""});
  EXPECT_EQ(table.ToString(),
            "name        n\n"
            "-------------\n"
            "a       1,000\n"
            "longer\n");
}

TEST(List, ValuesStartInOneColumn) {
  List list;
  list.Item("a", "1");
  list.Item("long", "two words");
  EXPECT_EQ(list.ToString(), "a     1\nlong  two words\n");
}

}  // namespace
}  // namespace attnd::attnctl
