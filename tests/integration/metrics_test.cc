// Every metric of the contract: its type, its labels, and values that agree with GetStats and
// with the traffic that made them.
#include <cstdio>
#include <fstream>

#include "tests/integration/copies.h"
#include "tests/integration/http_get.h"
#include "tests/integration/metrics_text.h"
#include "tests/integration/tiny_server.h"

namespace attnd {
namespace {

using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::Not;

class MetricsTest : public TinyServerTest {
 protected:
  // Some of everything. Returns the session that is still there.
  std::string Traffic() {
    const std::string session = wire_.Create(10);
    wire_.Prefill(session, kTinyLocal, 0, TinyRows(1, 6));
    wire_.Prefill(session, kTinyLocal, 6, TinyRows(1, 14));
    wire_.Prefill(session, kTinyGlobal, 0, TinyRows(1, 20));
    wire_.Decode(kTinyLocal, {{session, 20, 2}}, TinyRows(2, 2));
    wire_.Decode(kTinyGlobal, {{session, 20}}, TinyRows(2, 1));
    StepsCall steps(wire_);
    steps.Write(StepOf(1, DecodeOf(kTinyGlobal, {{session, 21}}, TinyRows(3, 1))));
    EXPECT_EQ(StatusText(steps.Next().status()), "OK");
    steps.Write(StepOf(2, PrefillOf(session, kTinyLocal, 22, TinyRows(3, 8))));
    EXPECT_EQ(StatusText(steps.Next().status()), "OK");
    steps.Write(StepOf(3, PrefillOf("nobody", kTinyLocal, 22, TinyRows(3, 8))));
    EXPECT_EQ(StatusText(steps.Next().status()), "NOT_FOUND SESSION_UNKNOWN");
    steps.HalfClose();
    EXPECT_TRUE(steps.Finish().ok());
    wire_.Close(wire_.Create(0, 100));
    wire_.Create(0, 100);
    v1::Session info;
    wire_.Get("nobody", &info);
    return session;
  }
};

TEST_F(MetricsTest, NamesTypesAndLabelsAreTheContracts) {
  Traffic();
  const Metrics metrics = Scrape(server_.http());
  struct Family {
    const char* name;
    const char* type;
    std::vector<std::string> labels;
  };
  const std::vector<Family> families = {
      {"attnd_build_info", "gauge", {"device", "version"}},
      {"attnd_draining", "gauge", {}},
      {"attnd_host_memory_limit_bytes", "gauge", {}},
      {"attnd_host_memory_used_bytes", "gauge", {}},
      {"attnd_kv_cache_capacity_bytes", "gauge", {}},
      {"attnd_kv_cache_used_bytes", "gauge", {"kind"}},
      {"attnd_kv_cache_reserved_bytes", "gauge", {"kind"}},
      {"attnd_kv_cache_usage_ratio", "gauge", {}},
      {"attnd_kv_cache_tokens", "gauge", {"kind"}},
      {"attnd_sessions", "gauge", {}},
      {"attnd_sessions_created_total", "counter", {}},
      {"attnd_sessions_ended_total", "counter", {"reason"}},
      {"attnd_rpc_requests_total", "counter", {"code", "method"}},
      {"attnd_rpc_duration_seconds", "histogram", {"method"}},
      {"attnd_step_queue_seconds", "histogram", {"kind", "phase"}},
      {"attnd_step_compute_seconds", "histogram", {"kind", "phase"}},
      {"attnd_tokens_total", "counter", {"kind", "phase"}},
      {"attnd_batch_rows", "histogram", {"phase"}},
      {"attnd_queue_depth", "gauge", {}},
      {"attnd_inflight_bytes", "gauge", {}},
      {"attnd_inflight_rpcs", "gauge", {}},
      {"attnd_rejected_total", "counter", {"reason"}},
      {"process_cpu_seconds_total", "counter", {}},
      {"process_resident_memory_bytes", "gauge", {}},
      {"process_virtual_memory_bytes", "gauge", {}},
      {"process_start_time_seconds", "gauge", {}},
      {"process_open_fds", "gauge", {}},
      {"process_max_fds", "gauge", {}}};
  for (const Family& family : families) {
    const auto type = metrics.types.find(family.name);
    ASSERT_NE(type, metrics.types.end()) << family.name;
    EXPECT_EQ(type->second, family.type) << family.name;
    EXPECT_THAT(metrics.Labels(family.name), ElementsAreArray(family.labels)) << family.name;
  }
  EXPECT_EQ(metrics.types.size(), families.size()) << "a metric is not in the contract";
  EXPECT_EQ(metrics.Get("attnd_build_info{device=\"" + server_.Ready("device") + "\",version=\"" +
                        wire_.Model().version() + "\"}"),
            1);
}

TEST_F(MetricsTest, ValuesAgreeWithTheTraffic) {
  Traffic();
  const Metrics m = Scrape(server_.http());
  EXPECT_EQ(m.Get("attnd_rpc_requests_total{code=\"OK\",method=\"Prefill\"}"), 3);
  EXPECT_EQ(m.Get("attnd_rpc_requests_total{code=\"OK\",method=\"Decode\"}"), 2);
  EXPECT_EQ(m.Get("attnd_rpc_requests_total{code=\"OK\",method=\"Steps.Prefill\"}"), 1);
  EXPECT_EQ(m.Get("attnd_rpc_requests_total{code=\"OK\",method=\"Steps.Decode\"}"), 1);
  EXPECT_EQ(m.Get("attnd_rpc_requests_total{code=\"NOT_FOUND\",method=\"Steps.Prefill\"}"), 1);
  EXPECT_EQ(m.Get("attnd_rpc_requests_total{code=\"OK\",method=\"CreateSession\"}"), 3);
  EXPECT_EQ(m.Get("attnd_rpc_requests_total{code=\"OK\",method=\"CloseSession\"}"), 1);
  EXPECT_EQ(m.Get("attnd_rpc_requests_total{code=\"NOT_FOUND\",method=\"GetSession\"}"), 1);
  EXPECT_EQ(m.Get("attnd_rpc_duration_seconds_count{method=\"Prefill\"}"), 3);
  EXPECT_EQ(m.Get("attnd_rpc_duration_seconds_count{method=\"Steps.Prefill\"}"), 2);
  EXPECT_EQ(m.Get("attnd_tokens_total{kind=\"local\",phase=\"prefill\"}"), 28);
  EXPECT_EQ(m.Get("attnd_tokens_total{kind=\"global\",phase=\"prefill\"}"), 20);
  EXPECT_EQ(m.Get("attnd_tokens_total{kind=\"local\",phase=\"decode\"}"), 2);
  EXPECT_EQ(m.Get("attnd_tokens_total{kind=\"global\",phase=\"decode\"}"), 2);
  EXPECT_EQ(m.Get("attnd_step_compute_seconds_count{kind=\"local\",phase=\"prefill\"}"), 3);
  EXPECT_EQ(m.Get("attnd_step_queue_seconds_count{kind=\"global\",phase=\"decode\"}"), 2);
  EXPECT_GT(m.Get("attnd_step_compute_seconds_sum{kind=\"global\",phase=\"prefill\"}"), 0);
  EXPECT_EQ(m.Get("attnd_batch_rows_count{phase=\"decode\"}"), 3);
  EXPECT_EQ(m.Get("attnd_batch_rows_sum{phase=\"decode\"}"), 4);
  EXPECT_EQ(m.Get("attnd_sessions_created_total"), 3);
  EXPECT_EQ(m.Get("attnd_sessions"), 2);
  EXPECT_EQ(m.Get("attnd_kv_cache_tokens{kind=\"local\"}"), 30);
  EXPECT_EQ(m.Get("attnd_kv_cache_tokens{kind=\"global\"}"), 22);
  EXPECT_EQ(m.Get("attnd_queue_depth"), 0);
  EXPECT_EQ(m.Get("attnd_inflight_rpcs"), 0);
  EXPECT_EQ(m.Get("attnd_draining"), 0);
  EXPECT_EQ(m.Get("attnd_rpc_requests_total{code=\"INTERNAL\",method=\"Decode\"}"), 0)
      << "there from the start";
  EXPECT_EQ(m.Get("attnd_rejected_total{reason=\"QUEUE_FULL\"}"), 0) << "there from the start";
  EXPECT_EQ(m.Sum("attnd_rejected_total"), 0);
}

TEST_F(MetricsTest, ValuesAgreeWithGetStats) {
  const std::string session = Traffic();
  const Metrics m = Scrape(server_.http());
  const v1::Stats stats = wire_.Stats();
  EXPECT_GT(stats.kv_cache_used_bytes(), 0);
  EXPECT_GT(stats.kv_cache_reserved_bytes(), 0);
  EXPECT_EQ(m.Sum("attnd_kv_cache_used_bytes"), stats.kv_cache_used_bytes());
  EXPECT_EQ(m.Sum("attnd_kv_cache_reserved_bytes"), stats.kv_cache_reserved_bytes());
  EXPECT_EQ(m.Get("attnd_kv_cache_capacity_bytes"), stats.kv_cache_capacity_bytes());
  EXPECT_EQ(wire_.Model().kv_cache_capacity_bytes(), stats.kv_cache_capacity_bytes());
  EXPECT_EQ(m.Get("attnd_sessions"), stats.sessions());
  const double taken =
      static_cast<double>(stats.kv_cache_used_bytes() + stats.kv_cache_reserved_bytes());
  EXPECT_NEAR(m.Get("attnd_kv_cache_usage_ratio"),
              taken / static_cast<double>(stats.kv_cache_capacity_bytes()), 1e-6);
  EXPECT_GT(m.Get("attnd_kv_cache_used_bytes{kind=\"held\"}"), -1);
  v1::ListSessionsResponse list;
  ASSERT_TRUE(wire_.List(0, "", &list).ok());
  int64_t held = 0;
  int64_t reserved = 0;
  for (const v1::Session& s : list.sessions()) {
    held += s.cache_bytes();
    reserved += s.reserved_bytes();
  }
  EXPECT_EQ(held, stats.kv_cache_used_bytes());
  EXPECT_EQ(reserved, stats.kv_cache_reserved_bytes());
  EXPECT_FALSE(stats.draining());
  EXPECT_FALSE(stats.server_id().empty());
}

TEST_F(MetricsTest, TheRatioStaysBetween0And1AndEndsAt0) {
  std::vector<std::string> sessions;
  v1::CreateSessionRequest request;
  v1::PrefillResponse response;
  for (int i = 0; i < 60; ++i) {
    request.set_max_tokens(i % 2 == 0 ? kTinyMaxLength : 0);
    v1::Session info;
    if (wire_.Create(request, &info).ok()) {
      sessions.push_back(info.session_id());
      wire_.Prefill(PrefillOf(info.session_id(), i % 6, 0, TinyRows(1, 200)), &response);
      std::string fork;
      if (i % 3 == 0 && Fork(wire_, info.session_id(), 0, &fork).ok()) {
        sessions.push_back(fork);  // ends after its parent, whose pages it shares
      }
    }
    const double ratio = Scrape(server_.http()).Get("attnd_kv_cache_usage_ratio");
    EXPECT_GT(ratio, 0);
    EXPECT_LE(ratio, 1);
  }
  for (const std::string& session : sessions) {
    EXPECT_LE(Scrape(server_.http()).Get("attnd_kv_cache_usage_ratio"), 1);
    wire_.Close(session);
  }
  const Metrics m = Scrape(server_.http());
  EXPECT_EQ(m.Get("attnd_kv_cache_usage_ratio"), 0);
  EXPECT_EQ(m.Sum("attnd_kv_cache_used_bytes"), 0);
  EXPECT_EQ(m.Sum("attnd_kv_cache_reserved_bytes"), 0);
  EXPECT_EQ(m.Sum("attnd_kv_cache_tokens"), 0);
}

TEST_F(MetricsTest, NoLabelCarriesASessionAndSeriesDoNotGrow) {
  Traffic();
  const size_t before = Scrape(server_.http()).samples.size();
  for (int i = 0; i < 1000; ++i) {
    v1::CreateSessionRequest request;
    request.set_session_id("telltale-" + std::to_string(i));
    request.set_affinity_key("telltale");
    v1::Session info;
    ASSERT_TRUE(wire_.Create(request, &info).ok());
    if (i % 10 == 0) {
      wire_.Prefill(info.session_id(), kTinyLocal, 0, TinyRows(1, 2));
    }
    wire_.Close(info.session_id());
  }
  const HttpAnswer answer = HttpGet(server_.http(), "/metrics");
  EXPECT_THAT(answer.body, Not(HasSubstr("telltale")));
  EXPECT_EQ(ParseMetrics(answer.body).samples.size(), before);
}

TEST_F(MetricsTest, RefusalsAreCounted) {
  ReadyServer small({"--model=builtin:apex1-tiny", "--kv_cache_bytes=3MiB", "--max_sessions=30"});
  Wire wire(small.grpc());
  v1::Session info;
  v1::CreateSessionRequest request;
  request.set_max_tokens(kTinyMaxLength);
  int full = 0;
  int too_many = 0;
  for (int i = 0; i < 100; ++i) {
    request.set_max_tokens(i < 30 ? kTinyMaxLength : 0);
    const Outcome outcome = wire.Create(request, &info);
    full += outcome.reason == "CACHE_FULL" ? 1 : 0;
    too_many += outcome.reason == "TOO_MANY_SESSIONS" ? 1 : 0;
  }
  EXPECT_GT(full, 0);
  EXPECT_GT(too_many, 0);
  const Metrics m = Scrape(small.http());
  EXPECT_EQ(m.Get("attnd_rejected_total{reason=\"TOO_MANY_SESSIONS\"}"), too_many);
  EXPECT_EQ(m.Get("attnd_rejected_total{reason=\"CACHE_FULL\"}"), full);
  EXPECT_EQ(m.Get("attnd_rpc_requests_total{code=\"RESOURCE_EXHAUSTED\",method=\"CreateSession\"}"),
            full + too_many);
}

TEST_F(MetricsTest, PromtoolFindsNothingToSay) {
  Traffic();
  ASSERT_EQ(std::system("command -v promtool >/dev/null"), 0)
      << "promtool is missing: install the package prometheus";
  TempDir dir;
  const std::string file = dir.Write("metrics", HttpGet(server_.http(), "/metrics").body);
  const std::string said = dir.path() + "/said";
  const int status =
      std::system(("promtool check metrics < " + file + " > " + said + " 2>&1").c_str());
  std::ifstream text(said);
  const std::string words((std::istreambuf_iterator<char>(text)), std::istreambuf_iterator<char>());
  EXPECT_EQ(status, 0);
  EXPECT_EQ(words, "");
}

}  // namespace
}  // namespace attnd
