#include "core/text.h"

#include <gtest/gtest.h>

namespace attnd {
namespace {

TEST(Text, FindsTheFirstByteThatIsNotUtf8) {
  EXPECT_EQ(FirstInvalidUtf8(""), 0u);
  for (const char* good : {"abc", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF",
                           "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF", "a█·b"}) {
    EXPECT_EQ(FirstInvalidUtf8(good), std::string(good).size()) << good;
  }
  // Lone and missing continuations, overlong forms, a surrogate, above U+10FFFF.
  for (const char* bad : {"\x80", "\xC2", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xE2\x82",
                          "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xFF", "\xF8\x88\x80\x80"}) {
    EXPECT_EQ(FirstInvalidUtf8(bad), 0u) << bad;
    EXPECT_EQ(FirstInvalidUtf8("ab" + std::string(bad)), 2u) << bad;
  }
}

TEST(Text, PrintsOnOneLine) {
  EXPECT_EQ(Printable("plain name"), "plain name");
  EXPECT_EQ(Printable(std::string("a\nb\0c", 5)), "a\\x0ab\\x00c");
  EXPECT_EQ(Printable("\xFF\\\x7F"), "\\xff\\x5c\\x7f");
  EXPECT_EQ(Printable("\xC2\x85"), "\\xc2\\x85");           // next line
  EXPECT_EQ(Printable("\xE2\x80\xA8"), "\\xe2\\x80\\xa8");  // line separator
  EXPECT_EQ(Printable("größe"), "größe");
  EXPECT_EQ(Printable("abcdef", 3), "abc...");
  EXPECT_EQ(Quoted("d_modle"), "'d_modle'");
  EXPECT_LT(Quoted(std::string(1 << 20, 'x')).size(), 200u);
}

TEST(Text, FindsTheNearestName) {
  const std::vector<std::string> known = {"d_model", "n_layers", "d_head", "d_head_rope"};
  EXPECT_EQ(Nearest("d_modle", known), "d_model");
  EXPECT_EQ(Nearest("layers", known), "n_layers");
  EXPECT_EQ(Nearest("d_head_rop", known), "d_head_rope");
  EXPECT_EQ(Nearest("", known), "d_head");
  EXPECT_EQ(Nearest(std::string(1 << 20, 'n'), {"a", "n"}), "n");
}

}  // namespace
}  // namespace attnd
