// The metrics of a server by name; sums and differences of readings.
#include "client/attnctl/top_counts.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>

namespace attnd::attnctl {
namespace {

double Sum(const std::map<std::string, double>& values) {
  double sum = 0;
  for (const auto& [name, value] : values) {
    sum += value;
  }
  return sum;
}

void AddTimes(double value, double factor, double* to) { *to += factor * value; }

void AddTimes(const MetricHistogram& other, double factor, MetricHistogram* to) {
  for (const auto& [bound, count] : other.at_most) {
    to->at_most[bound] += factor * count;
  }
  to->count += factor * other.count;
  to->sum += factor * other.sum;
}

template <typename Key, typename Value>
void AddTimes(const std::map<Key, Value>& other, double factor, std::map<Key, Value>* to) {
  for (const auto& [key, value] : other) {
    AddTimes(value, factor, &(*to)[key]);
  }
}

void AddTimes(const ServerCounts& other, double factor, ServerCounts* to) {
  AddTimes(other.calls, factor, &to->calls);
  AddTimes(other.failed, factor, &to->failed);
  AddTimes(other.refused, factor, &to->refused);
  AddTimes(other.ended, factor, &to->ended);
  AddTimes(other.tokens, factor, &to->tokens);
  AddTimes(other.created, factor, &to->created);
  AddTimes(other.cpu_seconds, factor, &to->cpu_seconds);
  AddTimes(other.duration, factor, &to->duration);
  AddTimes(other.queue, factor, &to->queue);
  AddTimes(other.compute, factor, &to->compute);
  AddTimes(other.batch_rows, factor, &to->batch_rows);
}

// The part of a histogram that a sample is, by the end of its name.
void ReadHistogram(const MetricSample& sample, const std::string& family,
                   MetricHistogram* histogram) {
  const std::string part = sample.name.substr(family.size());
  if (part == "_bucket") {
    const std::string bound = sample.Label("le");
    histogram->at_most[std::strtod(bound.c_str(), nullptr)] = sample.value;
  } else if (part == "_count") {
    histogram->count = sample.value;
  } else if (part == "_sum") {
    histogram->sum = sample.value;
  }
}

using Reader = std::function<void(const MetricSample& sample, ServerReading* reading)>;

// By name, how a sample is read.
std::map<std::string, Reader> ValueReaders() {
  const auto gauge = [](double ServerGauges::*field) {
    return [field](const MetricSample& s, ServerReading* r) { r->gauges.*field = s.value; };
  };
  using ByName = std::map<std::string, double>;
  const auto gauges = [](ByName ServerGauges::*field) {
    return [field](const MetricSample& s, ServerReading* r) {
      (r->gauges.*field)[s.Label("kind")] = s.value;
    };
  };
  const auto counters = [](ByName ServerCounts::*field) {
    return [field](const MetricSample& s, ServerReading* r) {
      (r->counts.*field)[s.Label("reason")] = s.value;
    };
  };
  return {
      {"attnd_kv_cache_capacity_bytes", gauge(&ServerGauges::capacity_bytes)},
      {"attnd_kv_cache_used_bytes", gauges(&ServerGauges::used_bytes)},
      {"attnd_kv_cache_reserved_bytes", gauges(&ServerGauges::reserved_bytes)},
      {"attnd_kv_cache_tokens", gauges(&ServerGauges::rows)},
      {"attnd_sessions", gauge(&ServerGauges::sessions)},
      {"attnd_queue_depth", gauge(&ServerGauges::queue_depth)},
      {"attnd_inflight_rpcs", gauge(&ServerGauges::inflight_rpcs)},
      {"attnd_inflight_bytes", gauge(&ServerGauges::inflight_bytes)},
      {"process_resident_memory_bytes", gauge(&ServerGauges::resident_bytes)},
      {"attnd_draining", gauge(&ServerGauges::draining)},
      {"attnd_sessions_ended_total", counters(&ServerCounts::ended)},
      {"attnd_rejected_total", counters(&ServerCounts::refused)},
      {"attnd_sessions_created_total",
       [](const MetricSample& s, ServerReading* r) { r->counts.created = s.value; }},
      {"process_cpu_seconds_total",
       [](const MetricSample& s, ServerReading* r) { r->counts.cpu_seconds = s.value; }},
      {"process_start_time_seconds",
       [](const MetricSample& s, ServerReading* r) { r->start_time = s.value; }},
      {"attnd_build_info",
       [](const MetricSample& s, ServerReading* r) {
         r->gauges.version = s.Label("version");
         r->gauges.device = s.Label("device");
       }},
      {"attnd_tokens_total",
       [](const MetricSample& s, ServerReading* r) {
         r->counts.tokens[{s.Label("phase"), s.Label("kind")}] = s.value;
       }},
      {"attnd_rpc_requests_total",
       [](const MetricSample& s, ServerReading* r) {
         r->counts.calls[s.Label("method")] += s.value;
         r->counts.failed[s.Label("method")] += s.Label("code") == "OK" ? 0 : s.value;
       }},
  };
}

// By family, which histogram of a reading a sample belongs to.
using HistogramOf = std::function<MetricHistogram*(const MetricSample& sample, ServerCounts* to)>;

std::map<std::string, HistogramOf> HistogramReaders() {
  using ByPhaseAndKind = std::map<PhaseAndKind, MetricHistogram>;
  const auto steps = [](ByPhaseAndKind ServerCounts::*field) {
    return [field](const MetricSample& s, ServerCounts* to) {
      return &(to->*field)[{s.Label("phase"), s.Label("kind")}];
    };
  };
  return {
      {"attnd_step_queue_seconds", steps(&ServerCounts::queue)},
      {"attnd_step_compute_seconds", steps(&ServerCounts::compute)},
      {"attnd_rpc_duration_seconds",
       [](const MetricSample& s, ServerCounts* to) { return &to->duration[s.Label("method")]; }},
      {"attnd_batch_rows",
       [](const MetricSample& s, ServerCounts* to) { return &to->batch_rows[s.Label("phase")]; }},
  };
}

// Whether a counter of `now` is below that of `before`.
template <typename Key>
bool AnyLower(const std::map<Key, double>& before, const std::map<Key, double>& now) {
  return std::any_of(before.begin(), before.end(), [&now](const auto& entry) {
    const auto found = now.find(entry.first);
    return found == now.end() || found->second < entry.second;
  });
}

}  // namespace

double MetricHistogram::Quantile(double q) const {
  const double rank = q * count;
  double lower_bound = 0, below = 0;
  for (const auto& [bound, at_most_bound] : at_most) {
    if (count > 0 && at_most_bound >= rank && at_most_bound > below) {
      return std::isinf(bound)
                 ? lower_bound
                 : lower_bound + (bound - lower_bound) * (rank - below) / (at_most_bound - below);
    }
    lower_bound = std::isinf(bound) ? lower_bound : bound;
    below = at_most_bound;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

void MetricHistogram::Add(const MetricHistogram& other) { AddTimes(other, 1, this); }

double ServerGauges::UsedBytes() const { return Sum(used_bytes); }
double ServerGauges::ReservedBytes() const { return Sum(reserved_bytes); }
double ServerGauges::UsageRatio() const {
  return capacity_bytes > 0 ? (UsedBytes() + ReservedBytes()) / capacity_bytes : 0;
}

void ServerGauges::Add(const ServerGauges& other) {
  AddTimes(other.used_bytes, 1, &used_bytes);
  AddTimes(other.reserved_bytes, 1, &reserved_bytes);
  AddTimes(other.rows, 1, &rows);
  for (double ServerGauges::*field :
       {&ServerGauges::capacity_bytes, &ServerGauges::sessions, &ServerGauges::queue_depth,
        &ServerGauges::inflight_rpcs, &ServerGauges::inflight_bytes,
        &ServerGauges::resident_bytes}) {
    this->*field += other.*field;
  }
}

void ServerCounts::Add(const ServerCounts& other, double factor) { AddTimes(other, factor, this); }

ServerCounts ServerCounts::Since(const ServerCounts& before) const {
  ServerCounts difference = *this;
  AddTimes(before, -1, &difference);
  return difference;
}

absl::StatusOr<ServerReading> ReadServer(const std::vector<MetricSample>& samples) {
  static const std::map<std::string, Reader> kValues = ValueReaders();
  static const std::map<std::string, HistogramOf> kHistograms = HistogramReaders();
  ServerReading reading;
  bool attnd = false;
  for (const MetricSample& sample : samples) {
    attnd = attnd || sample.name == "attnd_build_info";
    if (const auto found = kValues.find(sample.name); found != kValues.end()) {
      found->second(sample, &reading);
      continue;
    }
    const std::string family = sample.name.substr(0, sample.name.rfind('_'));
    if (const auto found = kHistograms.find(family); found != kHistograms.end()) {
      ReadHistogram(sample, family, found->second(sample, &reading.counts));
    }
  }
  if (!attnd) {
    return absl::InvalidArgumentError("no attnd_build_info: not the metrics of an attnd");
  }
  return reading;
}

bool Restarted(const ServerReading& before, const ServerReading& now) {
  // A process says the same each time, in hundredths of a second.
  return std::abs(before.start_time - now.start_time) > 0.005 ||
         AnyLower(before.counts.calls, now.counts.calls) ||
         AnyLower(before.counts.tokens, now.counts.tokens) ||
         now.counts.created < before.counts.created;
}

}  // namespace attnd::attnctl
