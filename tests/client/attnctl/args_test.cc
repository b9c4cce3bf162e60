// Command lines: what is accepted, and what the errors say.
#include "client/attnctl/args.h"

#include <gtest/gtest.h>

namespace attnd::attnctl {
namespace {

const std::vector<Flag> kFlags = {
    {"target", Flag::Kind::kText, "here", "", 0, 0},
    {"len", Flag::Kind::kInt, "", "", 1, 1024},
    {"json", Flag::Kind::kSwitch, "", "", 0, 0},
    {"rate", Flag::Kind::kNumber, "", "", 0, 100},
};

std::string ErrorText(const std::vector<std::string>& words) {
  const absl::StatusOr<Args> args = Args::Parse(kFlags, 1, words);
  return args.ok() ? "" : std::string(args.status().message());
}

TEST(Args, BothFormsDefaultsAndWords) {
  const absl::StatusOr<Args> args =
      Args::Parse(kFlags, 1, {"--len", "7", "list", "--json", "--target=a=b", "--rate=2.5e-1"});
  ASSERT_TRUE(args.ok()) << args.status();
  EXPECT_EQ(args->Int("len"), 7);
  EXPECT_EQ(args->Number("rate"), 0.25);
  EXPECT_EQ(args->Text("target"), "a=b");
  EXPECT_TRUE(args->Switch("json"));
  EXPECT_EQ(args->words(), std::vector<std::string>{"list"});

  const absl::StatusOr<Args> none = Args::Parse(kFlags, 1, {});
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->Text("target"), "here");
  EXPECT_FALSE(none->Has("len"));
  EXPECT_FALSE(none->Switch("json"));
}

TEST(Args, ErrorsNameTheFlagTheValueAndTheRange) {
  EXPECT_EQ(ErrorText({"--len", "0"}), "--len: '0'; expected a whole number from 1 to 1024");
  EXPECT_EQ(ErrorText({"--len=12x"}), "--len: '12x'; expected a whole number from 1 to 1024");
  EXPECT_NE(ErrorText({"--len=99999999999999999999"}), "");
  for (const char* bad : {"nan", "inf", "-0.1", "101", "1x", "0x1", ""}) {
    EXPECT_NE(ErrorText({"--rate", bad}), "") << bad;
  }
  EXPECT_EQ(ErrorText({"--rate", "101"}), "--rate: '101'; expected a number from 0 to 100");
  EXPECT_EQ(ErrorText({"--len"}), "--len needs a value");
  EXPECT_EQ(ErrorText({"--target="}), "--target: empty; expected a value");
  EXPECT_EQ(ErrorText({"--json=1"}), "--json takes no value");
  EXPECT_EQ(ErrorText({"--targte", "x"}), "unknown flag --targte; the nearest is --target");
  EXPECT_EQ(ErrorText({"a", "b"}), "unexpected word 'b'");
}

}  // namespace
}  // namespace attnd::attnctl
