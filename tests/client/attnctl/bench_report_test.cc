// The reports of a load: one result as text, as JSON and as CSV.
#include "client/attnctl/bench_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

namespace attnd::attnctl {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kSecond = 1000 * kMs;

// 100 requests a second of 4 sessions and 6 layers for 2 s after 1 s: answered in 2 ms, but the
// last ten of the second second fail.
BenchReport Report() {
  BenchReport report;
  report.options.mode_name = "decode";
  report.options.layers = "all";
  report.options.arrivals.rate = 100;
  report.options.warm_up_ns = kSecond;
  report.options.duration_ns = 2 * kSecond;
  report.options.interval_ns = kSecond;
  report.options.sessions = 8;
  report.options.batch = 4;
  report.options.prompt = 1000;
  report.options.concurrency = 2;
  report.shape = {{0, 1, 2, 3, 4, 5}, 64, 4, 32};
  report.model = "tiny";
  report.device = "cpu:avx2";
  report.end_ns = 3 * kSecond;
  LoadRecorder recorder(kSecond, kSecond);
  for (int64_t due = 0; due < 3 * kSecond; due += 10 * kMs) {
    const absl::Status status =
        due < 3 * kSecond - 100 * kMs ? absl::OkStatus() : absl::UnavailableError("gone");
    recorder.Add({due, due, due + 2 * kMs, status});
  }
  report.result = recorder.Result();
  return report;
}

TEST(BenchReport, Text) {
  const std::string text = BenchText(Report());
  EXPECT_THAT(text, HasSubstr("a request      a Decode of 4 sessions in each of 6 layers\n"));
  EXPECT_THAT(text, HasSubstr("sessions       8 of 1,000 to 1,032 rows, 2 requests at a time"));
  EXPECT_THAT(text, HasSubstr("95.0 requests/s, 2,280 rows/s over all layers\n"));
  EXPECT_THAT(text, HasSubstr("190 answered, 10 failed, 0 sent late (by more than 1 ms)\n"));
  EXPECT_THAT(text, HasSubstr("  UNAVAILABLE  10\n"));
  EXPECT_THAT(text, HasSubstr("latency, since due   2.00 ms  2.00 ms"));
}

TEST(BenchReport, Json) {
  const auto json = nlohmann::json::parse(BenchJson(Report()));
  EXPECT_EQ(json["due"], 200);
  EXPECT_EQ(json["answered"], 190);
  EXPECT_EQ(json["failed"], 10);
  EXPECT_EQ(json["errors"]["UNAVAILABLE"], 10);
  EXPECT_DOUBLE_EQ(json["answered_per_s"], 95);
  EXPECT_DOUBLE_EQ(json["rows_per_s"], 95 * 4 * 6);
  EXPECT_DOUBLE_EQ(json["duration_s"], 2);
  EXPECT_EQ(json["interrupted"], false);
  for (const char* key : {"p50", "p90", "p99", "p999", "max", "mean"}) {
    EXPECT_DOUBLE_EQ(json["latency_ms"][key], 2) << key;
    EXPECT_DOUBLE_EQ(json["service_ms"][key], 2) << key;
  }
}

TEST(BenchReport, CsvHasARowAnInterval) {
  std::ostringstream csv;
  WriteBenchCsv(Report(), &csv);
  EXPECT_EQ(csv.str(),
            "from_s,to_s,due,answered,failed,late,unstarted,p50_ms,p90_ms,p99_ms,p999_ms,max_ms,"
            "mean_ms\n"
            "0.000,1.000,100,100,0,0,0,2.000,2.000,2.000,2.000,2.000,2.000\n"
            "1.000,2.000,100,90,10,0,0,2.000,2.000,2.000,2.000,2.000,2.000\n");
}

TEST(BenchReport, WhatWasNeverSentIsSaid) {
  BenchReport report = Report();
  EXPECT_THAT(BenchText(report), Not(HasSubstr("never sent")));
  report.result.counts.unstarted = 7;
  EXPECT_THAT(BenchText(report), HasSubstr(", 7 never sent: all lanes were busy"));
  report.end_ns = 2 * kSecond;
  EXPECT_EQ(nlohmann::json::parse(BenchJson(report))["interrupted"], true);
}

TEST(BenchReport, ALineWhileItRuns) {
  const BenchReport report = Report();
  EXPECT_EQ(BenchProgress(report.options, kSecond / 2, {}), "0.5 of 3.0 s, warming up");
  EXPECT_EQ(BenchProgress(report.options, 3 * kSecond, report.result),
            "3.0 of 3.0 s, 95.0/s, p50 2.00 ms, p99 2.00 ms, 10 failed");
}

}  // namespace
}  // namespace attnd::attnctl
