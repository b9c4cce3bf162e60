// Lines of the log.
#include "server/log.h"

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace attnd::server {
namespace {

TEST(LogTest, ValuesAreQuotedWhereTheyNeedIt) {
  EXPECT_EQ(TextLine("ready", {{"grpc", "127.0.0.1:1"}}), "ready grpc=127.0.0.1:1");
  EXPECT_EQ(TextLine("x", {{"a", "two words"}, {"b", ""}, {"c", "say \"hi\""}}),
            R"(x a="two words" b="" c="say \"hi\"")");
  EXPECT_EQ(TextLine("x", {{"a", "line\nbreak"}}), R"(x a="line\nbreak")");
}

TEST(LogTest, EveryJsonLineIsAnObject) {
  testing::internal::CaptureStderr();
  Log(true).Warn("odd", {{"text", "a \"quote\"\nand \xff"}});
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const nlohmann::json json = nlohmann::json::parse(line);
  EXPECT_EQ(json["event"], "odd");
  EXPECT_EQ(json["level"], "warning");
  EXPECT_TRUE(json.contains("time"));
  EXPECT_EQ(json["text"].get<std::string>().substr(0, 13), "a \"quote\"\nand");
}

TEST(LogTest, TextLinesHaveTimeAndLevel) {
  testing::internal::CaptureStderr();
  Log(false).Info("ready", {{"a", "1"}});
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_EQ(line.substr(24), " info ready a=1\n") << line;
  EXPECT_EQ(line[23], 'Z');
}

}  // namespace
}  // namespace attnd::server
