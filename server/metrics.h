// Every metric of the server, in one place. Names and labels are frozen: dashboards depend on
// them. No label carries a session id.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "core/engine.h"
#include "core/error.h"
#include "core/step.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "server/methods.h"

namespace attnd::server {

// What the gauges show: one consistent moment of the engine.
struct MetricsSource {
  std::string device;
  std::function<EngineStats()> stats;
  StoreStats baseline;  // sessions of the warm-up, which are nobody's
  std::function<int64_t()> inflight_bytes;
  std::function<bool()> draining;
};

class Metrics {
 public:
  explicit Metrics(std::string version);

  // A request was answered. A rejection also counts in attnd_rejected_total.
  void Rpc(Method method, const absl::Status& status, double seconds);
  // A part of a Decode was refused.
  void Rejected(const absl::Status& status);
  // A step that ran: its own queueing and compute time.
  void StepRan(StepKind step, LayerKind kind, const StepTiming& timing);
  void BatchRan(const BatchReport& report);

  void RpcBegan() { inflight_.fetch_add(1, std::memory_order_relaxed); }
  void RpcEnded() { inflight_.fetch_sub(1, std::memory_order_relaxed); }

  // From here on the engine's gauges are those of `source`, and batches are counted.
  void SetSource(MetricsSource source);

  // The text exposition format. Any thread.
  std::string Expose() const;

 private:
  std::vector<prometheus::MetricFamily> Gauges() const;

  const std::string version_;
  prometheus::Registry registry_;
  prometheus::Family<prometheus::Counter>& requests_;
  prometheus::Family<prometheus::Counter>& rejected_;
  std::array<prometheus::Counter*, kNumMethods> requests_ok_;
  std::array<prometheus::Histogram*, kNumMethods> duration_;
  // [prefill, decode][local, global]
  std::array<std::array<prometheus::Histogram*, 2>, 2> queue_;
  std::array<std::array<prometheus::Histogram*, 2>, 2> compute_;
  std::array<std::array<prometheus::Counter*, 2>, 2> tokens_;
  std::array<prometheus::Histogram*, 2> batch_rows_;
  std::atomic<int64_t> inflight_{0};
  std::atomic<bool> counting_{false};

  mutable std::mutex mutex_;  // guards source_
  MetricsSource source_;
};

}  // namespace attnd::server
