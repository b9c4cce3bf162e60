// What attnctl top shows.
#include "client/attnctl/top_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "client/attnctl/top_json.h"

namespace attnd::attnctl {
namespace {

using testing::HasSubstr;
using testing::Not;

ServerView View(const std::string& address) {
  ServerView view;
  view.address = address;
  view.seconds = 2;
  view.start_time = 1'000'000;
  view.gauges.version = "0.1.0";
  view.gauges.device = "cpu:avx2";
  view.gauges.capacity_bytes = 1 << 20;
  view.gauges.used_bytes = {{"global", 256 << 10}, {"held", 0}, {"local", 128 << 10}};
  view.gauges.reserved_bytes = {{"global", 128 << 10}, {"held", 0}, {"local", 0}};
  view.gauges.sessions = 1234;
  view.gauges.queue_depth = 3;
  view.counts.calls = {{"Decode", 300}, {"Drain", 0}};
  view.counts.failed = {{"Decode", 1}, {"Drain", 0}};
  view.counts.refused = {{"CACHE_FULL", 3}, {"QUEUE_FULL", 0}};
  view.counts.tokens = {{{"decode", "local"}, 5000}};
  view.counts.duration["Decode"].at_most = {{1e-3, 0}, {2e-3, 300}, {HUGE_VAL, 300}};
  view.counts.duration["Decode"].count = 300;
  view.counts.batch_rows["decode"].at_most = {{1, 10}, {2, 10}, {HUGE_VAL, 10}};
  view.counts.batch_rows["decode"].count = 10;
  view.counts.batch_rows["decode"].sum = 10;
  return view;
}

TopFrame Frame(std::vector<ServerView> servers) {
  return {std::move(servers), 2, 1'000'000 + 3 * 3600 + 12 * 60};
}

TEST(TopLines, OneServerAtLength) {
  const std::string text = PlainText(TopLines(Frame({View("a:1")})));
  EXPECT_EQ(text.rfind("a:1  0.1.0 on cpu:avx2, up 3 h 12 min  ", 0), 0U) << text;
  EXPECT_THAT(text, HasSubstr("  all     [###############-----                    ]    50 %  "
                              "384 KiB + 128 KiB reserved\n"));
  EXPECT_THAT(text, HasSubstr("  local   [#####                                   ]  12.5 %  "
                              "128 KiB\n"));
  EXPECT_THAT(text, HasSubstr("sessions  1,234; a second 0.0 created\n"));
  EXPECT_THAT(text, HasSubstr("queue     3 steps;"));
  EXPECT_THAT(text, HasSubstr("refusals  a second: 1.5 CACHE_FULL\n"));
  EXPECT_THAT(text, HasSubstr("  Decode  150       0.5  1.50 ms  1.90 ms  1.99 ms  2.00 ms\n"));
  EXPECT_THAT(text, Not(HasSubstr("Drain"))) << "a method that nobody called";
  EXPECT_THAT(text, HasSubstr("  decode local     2,500"));
  EXPECT_THAT(text, HasSubstr("  decode  5.0         1.0    1    1\n"));
  EXPECT_THAT(text, Not(HasSubstr("\033")));
}

TEST(TopLines, BeforeTheSecondReadingThereAreNoRates) {
  ServerView view = View("a:1");
  view.seconds = 0;
  const std::string text = PlainText(TopLines(Frame({view})));
  EXPECT_THAT(text, HasSubstr("a second - created"));
  EXPECT_THAT(text, HasSubstr("refusals  a second: - CACHE_FULL"));
}

TEST(TopLines, SeveralServersAreARowEachAndTheirSum) {
  ServerView gone;
  gone.address = "c:3";
  gone.status = absl::UnavailableError("no connection");
  ServerView back = View("b:2");
  back.restarted = true;
  back.gauges.draining = 1;
  const std::string text = PlainText(TopLines(Frame({View("a:1"), back, gone})));
  EXPECT_EQ(text.rfind("2 of 3 servers  ", 0), 0U) << text;
  EXPECT_THAT(text, HasSubstr("\n  a:1    50 %     1,234      3      150     2,500        1.5"));
  EXPECT_THAT(text, HasSubstr("\n  c:3  unreachable: no connection\n"));
  EXPECT_THAT(text, HasSubstr("\n  b:2  0.1.0 on cpu:avx2, up 3 h 12 min  draining  restarted\n"));
  EXPECT_THAT(text, HasSubstr("sessions  2,468;"));
  EXPECT_THAT(text, HasSubstr("  Decode  300       1.0"));
}

TEST(TopLines, AnUnreachableServerAloneIsOneLine) {
  ServerView gone;
  gone.address = "c:3";
  gone.status = absl::UnavailableError("no connection");
  const std::string text = PlainText(TopLines(Frame({gone})));
  EXPECT_EQ(text.rfind("c:3  unreachable: no connection  ", 0), 0U);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
}

ServerView Nonsense() {
  ServerView view = View("a:1");
  view.start_time = -HUGE_VAL;
  view.gauges.used_bytes = {{"global", NAN}, {"held", HUGE_VAL}, {"local", -1e300}};
  view.gauges.sessions = NAN;
  view.gauges.queue_depth = HUGE_VAL;
  view.counts.calls["Decode"] = HUGE_VAL;
  return view;
}

TEST(TopLines, NumbersThatAreNoneAreADash) {
  const std::string text = PlainText(TopLines(Frame({Nonsense()})));
  EXPECT_THAT(text, HasSubstr("up for an unknown time"));
  EXPECT_THAT(text, HasSubstr("sessions  -; a second"));
  EXPECT_THAT(text, Not(HasSubstr("nan")));
  EXPECT_THAT(text, HasSubstr("  global  [                                        ]"));
  EXPECT_THAT(text, HasSubstr("  held    [########################################]"));
  ServerView view = View("a:1");
  view.gauges.capacity_bytes = NAN;
  EXPECT_THAT(PlainText(TopLines(Frame({view}))), HasSubstr("  all     [       "));
}

TEST(TopLines, AServersWordsDoNotSteerTheTerminal) {
  ServerView view = View("a:1");
  view.gauges.device = "\033]0;x\a";
  view.gauges.used_bytes["\033[2J"] = 5;
  view.counts.refused["\033[2J"] = 5;
  const std::string text = PlainText(TopLines(Frame({view, view})));
  EXPECT_THAT(text, Not(HasSubstr("\033")));
  EXPECT_THAT(text, Not(HasSubstr("\a")));
  EXPECT_THAT(text, HasSubstr("\\x1b[2J"));
}

TEST(ScreenText, IsCutToTheScreenAndColouredOnlyWhenWanted) {
  const std::vector<Line> lines = {{{"title", Ink::kTitle}, {" and more", Ink::kPlain}},
                                   {},
                                   {{"bad", Ink::kBad}},
                                   {{"below", Ink::kPlain}}};
  EXPECT_EQ(ScreenText(lines, 9, 3, false), "title and\n\n... 2 mor");
  EXPECT_EQ(ScreenText(lines, 8, 4, false), "title an\n\nbad\nbelow");
  EXPECT_EQ(ScreenText(lines, 3, 4, true), "\033[1mtit\033[0m\n\n\033[31mbad\033[0m\nbel");
  EXPECT_EQ(ScreenText(lines, 100, 100, false), "title and more\n\nbad\nbelow");
}

TEST(TopJson, HasTheSameNumbers) {
  ServerView gone;
  gone.address = "c:3";
  gone.status = absl::UnavailableError("no connection");
  const std::string line = TopJson(Frame({View("a:1"), gone}));
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto json = nlohmann::json::parse(line);
  const auto& server = json["servers"][0];
  EXPECT_EQ(server["address"], "a:1");
  EXPECT_EQ(server["cache"]["used_bytes"]["global"], 256 << 10);
  EXPECT_DOUBLE_EQ(server["cache"]["usage_ratio"], 0.5);
  EXPECT_EQ(server["sessions"], 1234);
  EXPECT_EQ(server["draining"], false);
  EXPECT_DOUBLE_EQ(server["calls"]["Decode"]["per_s"], 150);
  EXPECT_DOUBLE_EQ(server["calls"]["Decode"]["failed_per_s"], 0.5);
  EXPECT_NEAR(server["calls"]["Decode"]["latency_ms"]["p50"], 1.5, 1e-9);
  EXPECT_TRUE(server["calls"]["Drain"]["latency_ms"]["p50"].is_null());
  EXPECT_DOUBLE_EQ(server["phases"]["decode"]["local"]["tokens_per_s"], 2500);
  EXPECT_DOUBLE_EQ(server["refused_per_s"]["CACHE_FULL"], 1.5);
  EXPECT_DOUBLE_EQ(server["batches"]["decode"]["rows_mean"], 1);
  EXPECT_EQ(json["servers"][1],
            nlohmann::json({{"address", "c:3"}, {"reachable", false}, {"error", "no connection"}}));
  EXPECT_EQ(json["total"]["sessions"], 1234);
}

TEST(TopJson, NumbersThatAreNoneAreNull) {
  const auto server = nlohmann::json::parse(TopJson(Frame({Nonsense()})))["servers"][0];
  EXPECT_TRUE(server["sessions"].is_null());
  EXPECT_TRUE(server["start_time"].is_null());
  EXPECT_TRUE(server["cache"]["used_bytes"]["global"].is_null());
  EXPECT_TRUE(server["calls"]["Decode"]["per_s"].is_null());
}

TEST(TopJson, ABatchHasARowAtLeast) {
  const auto server = nlohmann::json::parse(TopJson(Frame({View("a:1")})))["servers"][0];
  EXPECT_EQ(server["batches"]["decode"]["rows_p50"], 1);
}

}  // namespace
}  // namespace attnd::attnctl
