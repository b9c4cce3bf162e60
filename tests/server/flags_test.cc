// The table of flags: every form that is accepted, and a one-line error for everything else.
#include "server/flags.h"

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/temp_dir.h"

namespace attnd::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Values {
  std::string name = "first";
  std::vector<std::string> listen = {"default"};
  bool loud = false;
  int64_t rows = 7;
  double rate = 0.5;
  int64_t bytes = 1024;
  int64_t ttl = 1'000'000'000;
  std::string mode = "a";

  FlagTable Table() {
    using enum FlagKind;
    return FlagTable({
        {"One", "name", kText, &name, "A name."},
        {"One", "listen", kList, &listen, "Addresses."},
        {"One", "loud", kBool, &loud, "Loud."},
        {"Two", "rows", kInt, &rows, "Rows.", 1, 100},
        {"Two", "rate", kReal, &rate, "Rate.", 0, 1},
        {"Two", "bytes", kBytes, &bytes, "Bytes.", 1, 1 << 20},
        {"Two", "ttl", kDuration, &ttl, "Time.", 1, 1e12},
        {"Two", "mode", kChoice, &mode, "Mode.", 0, 0, {"a", "b"}},
        {"Two", "secret", kText, &secret, "Secret.", 0, 0, {}, "off"},
        {"Two", "budget", kBytes, &budget, "Budget.", 1, 1 << 20, {}, "auto"},
        {"Two", "flagfile", kText, &file, "File.", 0, 0, {}, nullptr, false},
    });
  }
  std::string file;
  std::string secret;
  int64_t budget = 0;
};

TEST(FlagsTest, AcceptsEveryForm) {
  Values v;
  FlagTable table = v.Table();
  ASSERT_TRUE(table
                  .Parse({"--name=x=y", "--listen", "one", "--listen=two", "--loud", "--rows", "8",
                          "--rate=0.25", "--bytes=2KiB", "--ttl=2s", "--mode=b"})
                  .ok());
  EXPECT_EQ(v.name, "x=y");
  EXPECT_THAT(v.listen, ElementsAre("one", "two"));
  EXPECT_TRUE(v.loud);
  EXPECT_EQ(v.rows, 8);
  EXPECT_EQ(v.rate, 0.25);
  EXPECT_EQ(v.bytes, 2048);
  EXPECT_EQ(v.ttl, 2'000'000'000);
  EXPECT_EQ(v.mode, "b");
}

TEST(FlagsTest, ADefaultCanBeNamed) {
  Values v;
  FlagTable table = v.Table();
  ASSERT_TRUE(table.Parse({"--secret=x", "--budget=2KiB"}).ok());
  ASSERT_TRUE(table.Parse({"--secret=off", "--budget=auto"}).ok());
  EXPECT_EQ(v.secret, "");
  EXPECT_EQ(v.budget, 0);
}

TEST(FlagsTest, BooleansCanBeTurnedOff) {
  for (const char* off : {"--noloud", "--loud=false", "--loud=0"}) {
    Values v;
    v.loud = true;
    FlagTable table = v.Table();
    ASSERT_TRUE(table.Parse({off}).ok()) << off;
    EXPECT_FALSE(v.loud) << off;
  }
}

TEST(FlagsTest, TheLastValueCounts) {
  Values v;
  FlagTable table = v.Table();
  ASSERT_TRUE(table.Parse({"--rows=8", "--rows=9"}).ok());
  EXPECT_EQ(v.rows, 9);
}

TEST(FlagsTest, EveryMistakeIsNamed) {
  const struct {
    std::vector<std::string> args;
    const char* message;
  } cases[] = {
      {{"--rosw=3"}, "unknown flag --rosw; the nearest known one is --rows"},
      {{"--noname"}, "unknown flag --noname"},
      {{"--nope"}, "unknown flag --nope"},
      {{"plain"}, "unexpected argument 'plain'"},
      {{"--"}, "unexpected argument '--'"},
      {{"--rows"}, "--rows: expected a value"},
      {{"--rows="}, "--rows=: expected a whole number from 1 to 100"},
      {{"--rows=0"}, "--rows=0: expected a whole number from 1 to 100"},
      {{"--rows=1.5"}, "--rows=1.5: expected a whole number"},
      {{"--rows=99999999999999999999"}, "expected a whole number"},
      {{"--rate=2"}, "--rate=2: expected a number from 0 to 1"},
      {{"--rate=nan"}, "--rate=nan: expected a number"},
      {{"--bytes=2MB"}, "--bytes=2MB: expected bytes such as 512MiB"},
      {{"--ttl=10"}, "--ttl=10: expected a duration such as 1.5s"},
      {{"--flagfile=/tmp"}, "--flagfile=/tmp: is a directory"},
      {{"--flagfile=/dev/zero"}, "--flagfile=/dev/zero: is not a regular file"},
      {{"--secret="}, "--secret=: expected a value, or off"},
      {{"--mode=c"}, "--mode=c: expected one of a, b"},
      {{"--loud=maybe"}, "--loud=maybe: expected true or false"},
      {{"--flagfile=/does/not/exist"}, "--flagfile=/does/not/exist: cannot be opened"},
  };
  for (const auto& c : cases) {
    Values v;
    FlagTable table = v.Table();
    const absl::Status status = table.Parse(c.args);
    EXPECT_FALSE(status.ok()) << c.args.front();
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
  }
}

TEST(FlagsTest, ReadsAFile) {
  TempDir dir;
  const std::string path = dir.path() + "/flags";
  std::ofstream(path) << "# a comment\n\n  --rows=11  \n--loud\n--listen=a\n--listen=b\n";
  Values v;
  FlagTable table = v.Table();
  ASSERT_TRUE(table.Parse({"--flagfile=" + path, "--rows=12"}).ok());
  EXPECT_EQ(v.rows, 12);
  EXPECT_TRUE(v.loud);
  EXPECT_THAT(v.listen, ElementsAre("a", "b"));
}

TEST(FlagsTest, AMistakeInAFileHasItsLine) {
  TempDir dir;
  const std::string path = dir.path() + "/flags";
  for (const char* line : {"--rows=x", "--rows 3", "rows=3", "--flagfile=" /* nested */}) {
    std::ofstream(path) << "# first\n" << line << "\n";
    Values v;
    FlagTable table = v.Table();
    const absl::Status status = table.Parse({"--flagfile=" + path});
    EXPECT_THAT(std::string(status.message()), HasSubstr(path + ":2: ")) << line;
  }
}

TEST(FlagsTest, HelpGroupsAndShowsDefaults) {
  Values v;
  FlagTable table = v.Table();
  ASSERT_TRUE(table.Parse({"--rows=50"}).ok());
  const std::string help = table.Help();
  EXPECT_LT(help.find("One:"), help.find("--name"));
  EXPECT_LT(help.find("--loud"), help.find("Two:"));
  EXPECT_LT(help.find("Two:"), help.find("--rows"));
  EXPECT_THAT(help, HasSubstr("--rows (NUMBER; default 7)"));
  EXPECT_THAT(help, HasSubstr("--mode (a|b; default a)"));
  EXPECT_THAT(help, HasSubstr("--bytes (BYTES; default 1KiB)"));
}

TEST(FlagsTest, JsonAndValuesCarryTheTable) {
  Values v;
  FlagTable table = v.Table();
  ASSERT_TRUE(table.Parse({"--rows=50"}).ok());
  const nlohmann::json json = nlohmann::json::parse(table.Json());
  ASSERT_EQ(json.size(), 11U);
  EXPECT_EQ(json[3]["name"], "rows");
  EXPECT_EQ(json[3]["default"], "7");
  EXPECT_EQ(json[3]["setting"], true);
  EXPECT_EQ(json[10]["setting"], false);
  const auto values = table.Values();
  ASSERT_EQ(values.size(), 10U);
  EXPECT_EQ(values[3], (std::pair<std::string, std::string>("rows", "50")));
}

}  // namespace
}  // namespace attnd::server
