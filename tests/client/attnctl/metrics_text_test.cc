// Prometheus' text format: what is read, and what the errors say.
#include "client/attnctl/metrics_text.h"

#include <gtest/gtest.h>

#include <cmath>

#include "client/attnctl/metrics_fetch.h"

namespace attnd::attnctl {
namespace {

std::string ErrorText(const std::string& text) {
  const auto samples = ParseMetricsText(text);
  return samples.ok() ? "" : std::string(samples.status().message());
}

MetricSample Only(const std::string& line) {
  const auto samples = ParseMetricsText(line);
  EXPECT_TRUE(samples.ok()) << samples.status();
  EXPECT_EQ(samples.ok() ? samples->size() : 0, 1U) << line;
  return samples.ok() && !samples->empty() ? samples->front() : MetricSample();
}

TEST(MetricsText, SamplesInOrderWithoutComments) {
  const auto samples = ParseMetricsText(
      "# HELP a_total What it counts.\n# TYPE a_total counter\na_total 3\n\n"
      "   \na_total{x=\"1\"} 4\r\nb:c 5");
  ASSERT_TRUE(samples.ok()) << samples.status();
  ASSERT_EQ(samples->size(), 3U);
  EXPECT_EQ((*samples)[0].name, "a_total");
  EXPECT_EQ((*samples)[0].value, 3);
  EXPECT_EQ((*samples)[1].Label("x"), "1");
  EXPECT_EQ((*samples)[1].Label("y"), "");
  EXPECT_EQ((*samples)[2].name, "b:c");
  EXPECT_TRUE(ParseMetricsText("")->empty());
}

TEST(MetricsText, LabelsWithEscapesBlanksAndATrailingComma) {
  const MetricSample sample =
      Only(R"(m { a = "x,y}" , b="\"q\" \\ \n", c="",} 1.5e3 1395066363000)");
  EXPECT_EQ(sample.value, 1500);
  EXPECT_EQ(sample.Label("a"), "x,y}");
  EXPECT_EQ(sample.Label("b"), "\"q\" \\ \n");
  EXPECT_EQ(sample.labels.size(), 3U);
}

TEST(MetricsText, NumbersThatAreNone) {
  EXPECT_EQ(Only("m +Inf").value, HUGE_VAL);
  EXPECT_EQ(Only("m -Inf").value, -HUGE_VAL);
  EXPECT_TRUE(std::isnan(Only("m NaN").value));
}

TEST(MetricsText, ErrorsNameTheLineAndWhatWasExpected) {
  EXPECT_EQ(ErrorText("a 1\n<html>"), "line 2: expected a metric's name at byte 1 of '<html>'");
  EXPECT_EQ(ErrorText("a{x=1} 2"),
            "line 1: expected a label's value in double quotes at byte 5 of 'a{x=1} 2'");
  for (const char* bad : {"a", "a x", "a 1x", "a{", "a{x", "a{x=\"1\"", "a{x=\"1} 2", "a{x=\"1\\",
                          "a{=\"1\"} 2", "a{x=\"1\"y=\"2\"} 3", "a 1 2 3", "1a 2", "a{,} 1"}) {
    EXPECT_NE(ErrorText(bad), "") << bad;
  }
}

TEST(HttpTarget, HostAndPort) {
  for (const char* text : {"127.0.0.1:9470", "http://127.0.0.1:9470", "http://127.0.0.1:9470/"}) {
    const auto target = ParseHttpTarget(text);
    ASSERT_TRUE(target.ok()) << target.status();
    EXPECT_EQ(target->host, "127.0.0.1");
    EXPECT_EQ(target->port, 9470);
    EXPECT_EQ(target->Text(), "127.0.0.1:9470");
  }
  EXPECT_EQ(ParseHttpTarget("[::1]:80")->host, "::1");
  EXPECT_EQ(ParseHttpTarget("[::1]:80")->Text(), "[::1]:80");
  for (const char* bad : {"", "host", ":80", "host:", "host:0", "host:65536", "host:80x",
                          "https://host:80/", "host/x:80", "host:80/metrics"}) {
    EXPECT_FALSE(ParseHttpTarget(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace attnd::attnctl
