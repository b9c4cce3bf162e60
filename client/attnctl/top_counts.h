// What attnctl top reads from a server's metrics, and the difference between two readings.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/attnctl/metrics_text.h"

namespace attnd::attnctl {

// A histogram of Prometheus: how many values were at most each bound, the last of which is +Inf.
struct MetricHistogram {
  std::map<double, double> at_most;
  double count = 0;
  double sum = 0;

  // The value that a share `q` did not exceed, linear within its bucket, as histogram_quantile has
  // it; beyond the last finite bound that bound. NaN when there are none.
  double Quantile(double q) const;
  void Add(const MetricHistogram& other);
};

using PhaseAndKind = std::pair<std::string, std::string>;  // "decode", "local"

// What is at this moment.
struct ServerGauges {
  std::string version;
  std::string device;
  double capacity_bytes = 0;
  std::map<std::string, double> used_bytes;  // by kind of page: global, held, local
  std::map<std::string, double> reserved_bytes;
  std::map<std::string, double> rows;  // by kind of layer
  double sessions = 0;
  double queue_depth = 0;
  double inflight_rpcs = 0;
  double inflight_bytes = 0;
  double resident_bytes = 0;
  double draining = 0;  // 1: it is

  double UsedBytes() const;
  double ReservedBytes() const;
  double UsageRatio() const;
  void Add(const ServerGauges& other);
};

// What has happened: since the server's start, or between two readings.
struct ServerCounts {
  std::map<std::string, double> calls;    // by method
  std::map<std::string, double> failed;   // by method: those whose code is not OK
  std::map<std::string, double> refused;  // by reason
  std::map<std::string, double> ended;    // sessions, by reason
  std::map<PhaseAndKind, double> tokens;
  double created = 0;  // sessions
  double cpu_seconds = 0;
  std::map<std::string, MetricHistogram> duration;    // seconds of calls, by method
  std::map<PhaseAndKind, MetricHistogram> queue;      // seconds of steps
  std::map<PhaseAndKind, MetricHistogram> compute;    // seconds of steps
  std::map<std::string, MetricHistogram> batch_rows;  // by phase

  void Add(const ServerCounts& other, double factor = 1);
  // What came after `before`.
  ServerCounts Since(const ServerCounts& before) const;
};

struct ServerReading {
  ServerGauges gauges;
  ServerCounts counts;
  double start_time = 0;  // of the process, seconds since the Unix epoch
};

// INVALID_ARGUMENT when these are not an attnd's.
absl::StatusOr<ServerReading> ReadServer(const std::vector<MetricSample>& samples);

// Whether the counters began anew between the two.
bool Restarted(const ServerReading& before, const ServerReading& now);

}  // namespace attnd::attnctl
