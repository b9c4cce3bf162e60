// The metrics: names, types and labels are frozen, because dashboards and alerts depend on them.
#include "server/metrics.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "core/error.h"
#include "core/host_limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnd::server {
namespace {

using ::testing::Not;

// Unlike HasSubstr, does not print hundreds of lines when it fails.
MATCHER_P(HasLine, line, "has the line " + std::string(line)) {
  *result_listener << "which has " << std::count(arg.begin(), arg.end(), '\n') << " others";
  return ("\n" + arg).find("\n" + std::string(line) + "\n") != std::string::npos;
}

// "type{label,label}" of every family of an exposition; `le` is the histograms' own.
std::map<std::string, std::string> Families(const std::string& text) {
  std::map<std::string, std::string> types;
  std::map<std::string, std::set<std::string>> labels;
  std::istringstream lines(text);
  std::string line;
  std::string family;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string hash;
    std::string kind;
    if (line.rfind("# TYPE ", 0) == 0) {
      words >> hash >> kind >> family;
      words >> types[family];
      continue;
    }
    const size_t open = line.find('{');
    if (line.empty() || line[0] == '#' || open == std::string::npos) {
      continue;
    }
    std::istringstream inside(line.substr(open + 1, line.find('}') - open - 1));
    for (std::string label; std::getline(inside, label, ',');) {
      labels[family].insert(label.substr(0, label.find('=')));
    }
  }
  for (auto& [name, type] : types) {
    labels[name].erase("le");
    std::string list;
    for (const std::string& label : labels[name]) {
      list += (list.empty() ? "" : ",") + label;
    }
    type += list.empty() ? "" : "{" + list + "}";
  }
  return types;
}

TEST(MetricsTest, NamesTypesAndLabelsAreFrozen) {
  const std::map<std::string, std::string> frozen = {
      {"attnd_batch_rows", "histogram{phase}"},
      {"attnd_build_info", "gauge{device,version}"},
      {"attnd_draining", "gauge"},
      {"attnd_host_memory_limit_bytes", "gauge"},
      {"attnd_host_memory_used_bytes", "gauge"},
      {"attnd_inflight_bytes", "gauge"},
      {"attnd_inflight_rpcs", "gauge"},
      {"attnd_kv_cache_capacity_bytes", "gauge"},
      {"attnd_kv_cache_reserved_bytes", "gauge{kind}"},
      {"attnd_kv_cache_tokens", "gauge{kind}"},
      {"attnd_kv_cache_usage_ratio", "gauge"},
      {"attnd_kv_cache_used_bytes", "gauge{kind}"},
      {"attnd_queue_depth", "gauge"},
      {"attnd_rejected_total", "counter{reason}"},
      {"attnd_rpc_duration_seconds", "histogram{method}"},
      {"attnd_rpc_requests_total", "counter{code,method}"},
      {"attnd_sessions", "gauge"},
      {"attnd_sessions_created_total", "counter"},
      {"attnd_sessions_ended_total", "counter{reason}"},
      {"attnd_step_compute_seconds", "histogram{kind,phase}"},
      {"attnd_step_queue_seconds", "histogram{kind,phase}"},
      {"attnd_tokens_total", "counter{kind,phase}"},
      {"process_cpu_seconds_total", "counter"},
      {"process_max_fds", "gauge"},
      {"process_open_fds", "gauge"},
      {"process_resident_memory_bytes", "gauge"},
      {"process_start_time_seconds", "gauge"},
      {"process_virtual_memory_bytes", "gauge"},
  };
  Metrics metrics("1.2.3");
  EXPECT_EQ(Families(metrics.Expose()), frozen);
  metrics.Rpc(Method::kPrefill, MakeError(Reason::kBadLayer, ""), 0.1);
  metrics.Rpc(Method::kStepsDecode, MakeError(Reason::kQueueFull, ""), 0.1);
  metrics.StepRan(StepKind::kDecode, LayerKind::kLocal, {1, 2, 3});
  EXPECT_EQ(Families(metrics.Expose()), frozen);
}

TEST(MetricsTest, CountsRequestsByMethodAndCode) {
  Metrics metrics("1.2.3");
  metrics.Rpc(Method::kPrefill, absl::OkStatus(), 30e-6);
  metrics.Rpc(Method::kPrefill, absl::OkStatus(), 70);
  metrics.Rpc(Method::kStepsDecode, MakeError(Reason::kPositionMismatch, ""), 1e-3);
  const std::string text = metrics.Expose();
  EXPECT_THAT(text, HasLine("attnd_rpc_requests_total{code=\"OK\",method=\"Prefill\"} 2"));
  EXPECT_THAT(text, HasLine("attnd_rpc_requests_total{code=\"FAILED_PRECONDITION\","
                            "method=\"Steps.Decode\"} 1"));
  EXPECT_THAT(text,
              HasLine("attnd_rpc_duration_seconds_bucket{method=\"Prefill\",le=\"2.5e-05\"} 0"));
  EXPECT_THAT(text, HasLine("attnd_rpc_duration_seconds_bucket{method=\"Prefill\",le=\"60\"} 1"));
  EXPECT_THAT(text, HasLine("attnd_rpc_duration_seconds_count{method=\"Prefill\"} 2"));
}

TEST(MetricsTest, RejectionsAreRefusalsForRoomOrReadiness) {
  Metrics metrics("1.2.3");
  metrics.Rpc(Method::kDecode, MakeError(Reason::kQueueFull, ""), 0);
  metrics.Rejected(MakeError(Reason::kCacheFull, ""));
  metrics.Rejected(MakeError(Reason::kCacheFull, ""));
  metrics.Rejected(MakeError(Reason::kBadTensor, ""));
  metrics.Rejected(absl::OkStatus());
  const std::string text = metrics.Expose();
  EXPECT_THAT(text, HasLine("attnd_rejected_total{reason=\"QUEUE_FULL\"} 1"));
  EXPECT_THAT(text, HasLine("attnd_rejected_total{reason=\"CACHE_FULL\"} 2"));
  EXPECT_THAT(text, HasLine("attnd_rejected_total{reason=\"DRAINING\"} 0"));
  EXPECT_THAT(text, Not(HasLine("attnd_rejected_total{reason=\"BAD_TENSOR\"} 1")));
}

TEST(MetricsTest, GaugesAreOneMomentOfTheEngine) {
  Metrics metrics("1.2.3");
  EngineStats stats;
  stats.pool.capacity_bytes = 1000;
  stats.pool.used_bytes[Index(PageKind::kGlobal)] = 100;
  stats.pool.used_bytes[Index(PageKind::kLocal)] = 200;
  stats.pool.used_bytes[Index(PageKind::kHeld)] = 50;
  stats.pool.reserved_bytes[Index(PageKind::kGlobal)] = 150;
  stats.store.sessions = 3;
  stats.store.created = 8;
  stats.store.closed = 4;
  stats.store.expired = 1;
  stats.store.tokens_local = 70;
  stats.store.tokens_global = 80;
  stats.queued_steps = 5;
  StoreStats baseline;
  baseline.created = 1;
  baseline.closed = 1;
  metrics.SetSource(
      {"cpu:avx2", [stats] { return stats; }, baseline, [] { return 4321; }, [] { return true; }});
  metrics.RpcBegan();
  metrics.RpcBegan();
  metrics.RpcEnded();
  const std::string text = metrics.Expose();
  for (const char* line : {
           "attnd_build_info{version=\"1.2.3\",device=\"cpu:avx2\"} 1",
           "attnd_kv_cache_capacity_bytes 1000",
           "attnd_kv_cache_used_bytes{kind=\"global\"} 100",
           "attnd_kv_cache_used_bytes{kind=\"local\"} 200",
           "attnd_kv_cache_used_bytes{kind=\"held\"} 50",
           "attnd_kv_cache_reserved_bytes{kind=\"global\"} 150",
           "attnd_kv_cache_reserved_bytes{kind=\"held\"} 0",
           "attnd_kv_cache_usage_ratio 0.5",
           "attnd_kv_cache_tokens{kind=\"local\"} 70",
           "attnd_kv_cache_tokens{kind=\"global\"} 80",
           "attnd_sessions 3",
           "attnd_sessions_created_total 7",
           "attnd_sessions_ended_total{reason=\"closed\"} 3",
           "attnd_sessions_ended_total{reason=\"expired\"} 1",
           "attnd_sessions_ended_total{reason=\"evicted\"} 0",
           "attnd_queue_depth 5",
           "attnd_inflight_rpcs 1",
           "attnd_inflight_bytes 4321",
           "attnd_draining 1",
       }) {
    EXPECT_THAT(text, HasLine(line));
  }
}

TEST(MetricsTest, HostMemoryIsThatOfTheTightestLimit) {
  const MemoryLimit memory = UsableMemory();
  std::istringstream lines(Metrics("1.2.3").Expose());
  std::map<std::string, double> values;
  std::string name;
  std::string value;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("attnd_host_memory_", 0) == 0 && std::istringstream(line) >> name >> value) {
      values[name] = std::stod(value);
    }
  }
  EXPECT_GT(values["attnd_host_memory_used_bytes"], 0);
  EXPECT_LE(values["attnd_host_memory_used_bytes"], values["attnd_host_memory_limit_bytes"]);
  EXPECT_EQ(values["attnd_host_memory_limit_bytes"], static_cast<double>(memory.limit_bytes));
}

TEST(MetricsTest, AnInternalErrorIsTheSecondSampleOfItsSeries) {
  Metrics metrics("1.2.3");
  const std::string series = "attnd_rpc_requests_total{code=\"INTERNAL\",method=\"Decode\"} ";
  EXPECT_THAT(metrics.Expose(), HasLine(series + "0"));
  metrics.Rpc(Method::kDecode, MakeError(Reason::kInternal, ""), 0);
  EXPECT_THAT(metrics.Expose(), HasLine(series + "1"));
}

TEST(MetricsTest, BatchesOfTheWarmUpAreNobodys) {
  Metrics metrics("1.2.3");
  const BatchReport report{.layer = 1,
                           .kind = LayerKind::kGlobal,
                           .prefill_rows = 3,
                           .decode_rows = 2,
                           .prefill_appended = 1,
                           .compute_ns = 5};
  metrics.BatchRan(report);
  EXPECT_THAT(metrics.Expose(), HasLine("attnd_tokens_total{kind=\"global\",phase=\"prefill\"} 0"));
  metrics.SetSource({"cpu", [] { return EngineStats(); }, {}, {}, {}});
  metrics.BatchRan(report);
  const std::string text = metrics.Expose();
  EXPECT_THAT(text, HasLine("attnd_tokens_total{kind=\"global\",phase=\"prefill\"} 1"));
  EXPECT_THAT(text, HasLine("attnd_tokens_total{kind=\"global\",phase=\"decode\"} 2"));
  EXPECT_THAT(text, HasLine("attnd_batch_rows_sum{phase=\"prefill\"} 3"));
  EXPECT_THAT(text, HasLine("attnd_batch_rows_count{phase=\"decode\"} 1"));
}

TEST(MetricsTest, ASeriesPerMethodAndReasonAndNoMore) {
  Metrics metrics("1.2.3");
  const auto lines = [&] {
    const std::string text = metrics.Expose();
    return std::count(text.begin(), text.end(), '\n');
  };
  metrics.Rpc(Method::kPrefill, MakeError(Reason::kSessionUnknown, "session 'a'"), 0);
  const auto before = lines();
  for (int i = 0; i < 1000; ++i) {
    metrics.Rpc(Method::kPrefill,
                MakeError(Reason::kSessionUnknown, "session '" + std::to_string(i) + "'"), 0);
  }
  EXPECT_EQ(lines(), before);
}

}  // namespace
}  // namespace attnd::server
