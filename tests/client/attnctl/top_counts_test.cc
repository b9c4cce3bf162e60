// Readings of a server and the difference between two, its restart included.
#include "client/attnctl/top_counts.h"

#include <gtest/gtest.h>

#include <cmath>

#include "client/attnctl/top_view.h"

namespace attnd::attnctl {
namespace {

// A server that started at `start` and has answered `calls` Decodes, each within 1 ms.
std::string Text(double start, int calls) {
  const std::string n = std::to_string(calls);
  return "attnd_build_info{device=\"cpu:avx2\",version=\"0.1.0\"} 1\n"
         "process_start_time_seconds " +
         std::to_string(start) +
         "\n"
         "process_resident_memory_bytes 1e+06\n"
         "attnd_kv_cache_capacity_bytes 1000\n"
         "attnd_kv_cache_used_bytes{kind=\"global\"} 300\n"
         "attnd_kv_cache_used_bytes{kind=\"local\"} 200\n"
         "attnd_kv_cache_reserved_bytes{kind=\"global\"} 100\n"
         "attnd_sessions 7\n"
         "attnd_draining 1\n"
         "attnd_sessions_created_total " +
         n +
         "\n"
         "attnd_rejected_total{reason=\"CACHE_FULL\"} 2\n"
         "attnd_tokens_total{phase=\"decode\",kind=\"local\"} " +
         n +
         "\n"
         "attnd_rpc_requests_total{method=\"Decode\",code=\"OK\"} " +
         n +
         "\n"
         "attnd_rpc_requests_total{method=\"Decode\",code=\"NOT_FOUND\"} 1\n"
         "attnd_rpc_duration_seconds_bucket{method=\"Decode\",le=\"0.0005\"} 0\n"
         "attnd_rpc_duration_seconds_bucket{method=\"Decode\",le=\"0.001\"} " +
         n +
         "\n"
         "attnd_rpc_duration_seconds_bucket{method=\"Decode\",le=\"+Inf\"} " +
         n +
         "\n"
         "attnd_rpc_duration_seconds_sum{method=\"Decode\"} 0.5\n"
         "attnd_rpc_duration_seconds_count{method=\"Decode\"} " +
         n +
         "\n"
         "something_else{x=\"y\"} 1\n";
}

ServerReading Read(double start, int calls) {
  const auto samples = ParseMetricsText(Text(start, calls));
  EXPECT_TRUE(samples.ok()) << samples.status();
  const auto reading = ReadServer(*samples);
  EXPECT_TRUE(reading.ok()) << reading.status();
  return *reading;
}

TEST(ReadServer, TakesWhatTheMetricsSay) {
  const ServerReading reading = Read(1000, 40);
  EXPECT_EQ(reading.gauges.version, "0.1.0");
  EXPECT_EQ(reading.gauges.device, "cpu:avx2");
  EXPECT_EQ(reading.gauges.UsedBytes(), 500);
  EXPECT_EQ(reading.gauges.UsageRatio(), 0.6);
  EXPECT_EQ(reading.gauges.sessions, 7);
  EXPECT_EQ(reading.gauges.draining, 1);
  EXPECT_EQ(reading.counts.calls.at("Decode"), 41);
  EXPECT_EQ(reading.counts.failed.at("Decode"), 1);
  EXPECT_EQ(reading.counts.refused.at("CACHE_FULL"), 2);
  EXPECT_EQ((reading.counts.tokens.at({"decode", "local"})), 40);
  EXPECT_EQ(reading.counts.duration.at("Decode").at_most.size(), 3U);
  EXPECT_EQ(reading.start_time, 1000);
}

TEST(ReadServer, RefusesAnotherProgramsMetrics) {
  const auto reading = ReadServer(*ParseMetricsText("up 1\n"));
  EXPECT_EQ(reading.status().message(), "no attnd_build_info: not the metrics of an attnd");
}

TEST(MetricHistogram, QuantilesAreLinearWithinABucket) {
  MetricHistogram histogram;
  histogram.at_most = {{1, 0}, {2, 50}, {4, 90}, {HUGE_VAL, 100}};
  EXPECT_TRUE(std::isnan(histogram.Quantile(0.5)));
  histogram.count = 100;
  EXPECT_DOUBLE_EQ(histogram.Quantile(0.25), 1.5);
  EXPECT_DOUBLE_EQ(histogram.Quantile(0.5), 2);
  EXPECT_DOUBLE_EQ(histogram.Quantile(0.7), 3);
  EXPECT_DOUBLE_EQ(histogram.Quantile(0.9), 4);
  EXPECT_DOUBLE_EQ(histogram.Quantile(0.99), 4) << "beyond the last bound";
}

TEST(ServerTrack, RatesAreTheDifferenceBetweenTwoReadings) {
  ServerTrack track("a:1");
  const ServerView first = track.Take(Read(1000, 40), 50);
  EXPECT_EQ(first.seconds, 0);
  EXPECT_TRUE(first.counts.calls.empty());
  EXPECT_EQ(first.gauges.sessions, 7);
  const ServerView view = track.Take(Read(1000, 60), 54);
  EXPECT_FALSE(view.restarted);
  EXPECT_EQ(view.seconds, 4);
  EXPECT_EQ(view.PerSecond(view.counts.calls.at("Decode")), 5);
  EXPECT_EQ(view.counts.failed.at("Decode"), 0);
  EXPECT_EQ(view.counts.refused.at("CACHE_FULL"), 0);
  EXPECT_DOUBLE_EQ(view.counts.duration.at("Decode").Quantile(0.5), 0.00075);
}

TEST(ServerTrack, AfterARestartTheCountsAreThoseSinceIt) {
  ServerTrack track("a:1");
  track.Take(Read(1000, 40), 50);
  const ServerView gone = track.Take(absl::UnavailableError("no connection"), 52);
  EXPECT_FALSE(gone.status.ok());
  EXPECT_TRUE(gone.counts.calls.empty());
  // More calls than before: only the process' start tells.
  const ServerView back = track.Take(Read(1051, 100), 60);
  EXPECT_TRUE(back.restarted);
  EXPECT_EQ(back.seconds, 10) << "since the last reading";
  EXPECT_EQ(back.counts.calls.at("Decode"), 101);
  const ServerView next = track.Take(Read(1051, 110), 62);
  EXPECT_FALSE(next.restarted);
  EXPECT_EQ(next.counts.calls.at("Decode"), 10);
}

TEST(ServerTrack, AGapWithoutARestartIsCovered) {
  ServerTrack track("a:1");
  track.Take(Read(1000, 40), 50);
  track.Take(absl::UnavailableError("no connection"), 52);
  const ServerView back = track.Take(Read(1000, 90), 60);
  EXPECT_FALSE(back.restarted);
  EXPECT_EQ(back.PerSecond(back.counts.calls.at("Decode")), 5);
}

TEST(Restarted, AProcessThatBeganSoonAfterIsAnother) {
  EXPECT_TRUE(Restarted(Read(1000, 40), Read(1000.02, 40)));
}

TEST(Restarted, CountersThatWentDownTellToo) {
  EXPECT_TRUE(Restarted(Read(1000, 40), Read(1000, 39)));
  EXPECT_FALSE(Restarted(Read(1000, 40), Read(1000, 40)));
}

TEST(Total, AddsUpWhatCouldBeRead) {
  ServerTrack a("a:1"), b("b:1"), c("c:1");
  a.Take(Read(1000, 0), 0);
  b.Take(Read(2000, 0), 0);
  const ServerView total = Total({a.Take(Read(1000, 10), 2), b.Take(Read(2000, 30), 2),
                                  c.Take(absl::UnavailableError("no"), 2)});
  EXPECT_EQ(total.address, "2 of 3 servers");
  EXPECT_EQ(total.gauges.sessions, 14);
  EXPECT_EQ(total.gauges.capacity_bytes, 2000);
  EXPECT_EQ(total.PerSecond(total.counts.calls.at("Decode")), 20);
  EXPECT_EQ(total.counts.duration.at("Decode").count, 40);
}

TEST(Total, IsTheSumOfTheRatesWhereOneWasReadAfterAGap) {
  ServerTrack a("a:1"), b("b:1");
  a.Take(Read(1000, 0), 0);
  a.Take(Read(1000, 4000), 4);
  b.Take(Read(2000, 0), 0);
  b.Take(absl::UnavailableError("no"), 4);
  const ServerView total = Total({a.Take(Read(1000, 4500), 4.5), b.Take(Read(2000, 4500), 4.5)});
  EXPECT_DOUBLE_EQ(total.PerSecond(total.counts.calls.at("Decode")), 2000);
  EXPECT_DOUBLE_EQ(total.PerSecond(total.counts.duration.at("Decode").count), 2000);
}

}  // namespace
}  // namespace attnd::attnctl
