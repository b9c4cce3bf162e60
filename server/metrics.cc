// Every metric of the server.
#include "server/metrics.h"

#include <utility>

#include "core/host_limits.h"
#include "prometheus/metric_family.h"
#include "prometheus/text_serializer.h"
#include "server/process_stats.h"
#include "server/status_map.h"

namespace attnd::server {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildHistogram;
using prometheus::ClientMetric;
using prometheus::Histogram;
using prometheus::MetricFamily;
using prometheus::MetricType;

// One layer of one step takes 10 us to seconds: three buckets a decade from 25 us on.
const Histogram::BucketBoundaries kSeconds = {25e-6, 50e-6, 1e-4,   2.5e-4, 5e-4, 1e-3, 2.5e-3,
                                              5e-3,  1e-2,  2.5e-2, 5e-2,   0.1,  0.25, 0.5,
                                              1,     2.5,   5,      10,     30,   60};
const Histogram::BucketBoundaries kRows = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096};
constexpr const char* kPhases[] = {"prefill", "decode"};
constexpr LayerKind kKinds[] = {LayerKind::kLocal, LayerKind::kGlobal};

int PhaseIndex(StepKind kind) { return kind == StepKind::kPrefill ? 0 : 1; }
int KindIndex(LayerKind kind) { return kind == LayerKind::kLocal ? 0 : 1; }

struct Sample {
  std::vector<ClientMetric::Label> labels;
  double value;
};

MetricFamily MakeFamily(const char* name, const char* help, MetricType type,
                        const std::vector<Sample>& samples) {
  MetricFamily family{name, help, type, {}};
  for (const Sample& sample : samples) {
    ClientMetric metric;
    metric.label = sample.labels;
    (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = sample.value;
    family.metric.push_back(std::move(metric));
  }
  return family;
}

MetricFamily Gauge(const char* name, const char* help, const std::vector<Sample>& samples) {
  return MakeFamily(name, help, MetricType::Gauge, samples);
}
MetricFamily Counter(const char* name, const char* help, const std::vector<Sample>& samples) {
  return MakeFamily(name, help, MetricType::Counter, samples);
}

Sample Value(int64_t value) { return {{}, static_cast<double>(value)}; }
Sample Labelled(const char* name, const char* label, int64_t value) {
  return {{{name, label}}, static_cast<double>(value)};
}

// A value per kind of page, as both byte gauges have it.
std::vector<Sample> ByPageKind(const PerKind& bytes) {
  std::vector<Sample> samples;
  for (PageKind kind : {PageKind::kGlobal, PageKind::kLocal, PageKind::kHeld}) {
    samples.push_back(Labelled("kind", PageKindName(kind), bytes[Index(kind)]));
  }
  return samples;
}

std::vector<MetricFamily> CacheGauges(const EngineStats& s) {
  int64_t taken = 0;
  for (int kind = 0; kind < kNumPageKinds; ++kind) {
    taken += s.pool.used_bytes[kind] + s.pool.reserved_bytes[kind];
  }
  const int64_t capacity = s.pool.capacity_bytes;
  const double ratio =
      capacity > 0 ? static_cast<double>(taken) / static_cast<double>(capacity) : 0;
  return {
      Gauge("attnd_kv_cache_capacity_bytes", "Budget of the cache.", {Value(capacity)}),
      Gauge("attnd_kv_cache_used_bytes", "Cache bytes in use.", ByPageKind(s.pool.used_bytes)),
      Gauge("attnd_kv_cache_reserved_bytes", "Cache bytes reserved for sessions and not yet used.",
            ByPageKind(s.pool.reserved_bytes)),
      Gauge("attnd_kv_cache_usage_ratio", "Used and reserved bytes over the capacity, 0 to 1.",
            {{{}, ratio}}),
      Gauge("attnd_kv_cache_tokens", "Rows held, summed over the layers of the kind.",
            {Labelled("kind", "global", s.store.tokens_global),
             Labelled("kind", "local", s.store.tokens_local)}),
  };
}

std::vector<MetricFamily> SessionMetrics(const StoreStats& s, const StoreStats& base) {
  return {
      Gauge("attnd_sessions", "Sessions held.", {Value(s.sessions)}),
      Counter("attnd_sessions_created_total", "Sessions created.",
              {Value(s.created - base.created)}),
      Counter("attnd_sessions_ended_total", "Sessions ended, by reason.",
              {Labelled("reason", "closed", s.closed - base.closed),
               Labelled("reason", "expired", s.expired - base.expired),
               Labelled("reason", "evicted", s.evicted - base.evicted)}),
  };
}

// Of the host: a card's memory is taken once, at the start. Read anew because a limit can be moved
// under a running process.
std::vector<MetricFamily> MemoryMetrics() {
  const MemoryLimit memory = UsableMemory();
  return {
      Gauge("attnd_host_memory_limit_bytes",
            "Host memory that the server may use: of the machine, or of the control group that "
            "leaves less.",
            {Value(memory.limit_bytes)}),
      Gauge("attnd_host_memory_used_bytes",
            "Memory used under that limit, by other processes too, without what the kernel can "
            "reclaim.",
            {Value(memory.used_bytes)}),
  };
}

std::vector<MetricFamily> ProcessMetrics() {
  const ProcessStats p = ReadProcessStats();
  return {
      Counter("process_cpu_seconds_total", "Processor time used, user and system.",
              {{{}, p.cpu_seconds}}),
      Gauge("process_open_fds", "Open file descriptors.", {Value(p.open_fds)}),
      Gauge("process_max_fds", "Limit of open file descriptors.", {Value(p.max_fds)}),
      Gauge("process_virtual_memory_bytes", "Virtual memory.", {Value(p.virtual_bytes)}),
      Gauge("process_resident_memory_bytes", "Resident memory.", {Value(p.resident_bytes)}),
      Gauge("process_start_time_seconds", "Start of the process since the Unix epoch.",
            {{{}, p.start_time_seconds}}),
  };
}

void Append(std::vector<MetricFamily> from, std::vector<MetricFamily>* to) {
  for (MetricFamily& family : from) {
    to->push_back(std::move(family));
  }
}

}  // namespace

Metrics::Metrics(std::string version)
    : version_(std::move(version)),
      requests_(BuildCounter()
                    .Name("attnd_rpc_requests_total")
                    .Help("Requests answered, by method and status code.")
                    .Register(registry_)),
      rejected_(BuildCounter()
                    .Name("attnd_rejected_total")
                    .Help("Requests refused for want of room or readiness, by reason.")
                    .Register(registry_)) {
  auto& duration = BuildHistogram()
                       .Name("attnd_rpc_duration_seconds")
                       .Help("From a request's arrival until its answer was handed to gRPC.")
                       .Register(registry_);
  auto& queue = BuildHistogram()
                    .Name("attnd_step_queue_seconds")
                    .Help("From a step's acceptance until its first batch started.")
                    .Register(registry_);
  auto& compute = BuildHistogram()
                      .Name("attnd_step_compute_seconds")
                      .Help("Execution of the batches that a step took part in.")
                      .Register(registry_);
  auto& tokens = BuildCounter()
                     .Name("attnd_tokens_total")
                     .Help("Rows appended and computed, times layers.")
                     .Register(registry_);
  auto& rows = BuildHistogram()
                   .Name("attnd_batch_rows")
                   .Help("Rows of a phase in one batch.")
                   .Register(registry_);
  for (int m = 0; m < kNumMethods; ++m) {
    const char* name = MethodName(static_cast<Method>(m));
    requests_ok_[m] = &requests_.Add({{"method", name}, {"code", "OK"}});
    // Alerted on: rate() misses the first of a series that begins with it.
    requests_.Add({{"method", name}, {"code", CodeName(absl::StatusCode::kInternal)}});
    duration_[m] = &duration.Add({{"method", name}}, kSeconds);
  }
  for (Reason reason :
       {Reason::kCacheFull, Reason::kQueueFull, Reason::kNotReady, Reason::kDraining,
        Reason::kTooManySessions, Reason::kMessageTooLarge, Reason::kSessionMoving}) {
    rejected_.Add({{"reason", ReasonName(reason)}});  // present from the start: rate() works
  }
  for (int p = 0; p < 2; ++p) {
    batch_rows_[p] = &rows.Add({{"phase", kPhases[p]}}, kRows);
    for (int k = 0; k < 2; ++k) {
      const prometheus::Labels labels = {{"phase", kPhases[p]}, {"kind", LayerKindName(kKinds[k])}};
      queue_[p][k] = &queue.Add(labels, kSeconds);
      compute_[p][k] = &compute.Add(labels, kSeconds);
      tokens_[p][k] = &tokens.Add(labels);
    }
  }
}

void Metrics::Rpc(Method method, const absl::Status& status, double seconds) {
  const int m = static_cast<int>(method);
  duration_[m]->Observe(seconds);
  if (status.ok()) {
    requests_ok_[m]->Increment();
    return;
  }
  requests_
      .Add({{"method", MethodName(method)}, {"code", CodeName(ReasonCode(WireReason(status)))}})
      .Increment();
  Rejected(status);
}

void Metrics::Rejected(const absl::Status& status) {
  if (IsRejection(status)) {
    rejected_.Add({{"reason", ReasonName(WireReason(status))}}).Increment();
  }
}

void Metrics::StepRan(StepKind step, LayerKind kind, const StepTiming& timing) {
  const int p = PhaseIndex(step);
  const int k = KindIndex(kind);
  queue_[p][k]->Observe(static_cast<double>(timing.queue_ns) * 1e-9);
  compute_[p][k]->Observe(static_cast<double>(timing.compute_ns) * 1e-9);
}

void Metrics::BatchRan(const BatchReport& report) {
  if (!counting_.load(std::memory_order_relaxed)) {
    return;  // the warm-up
  }
  const int k = KindIndex(report.kind);
  const int64_t rows[2] = {report.prefill_rows, report.decode_rows};
  const int64_t tokens[2] = {report.prefill_appended, report.decode_rows};
  for (int p = 0; p < 2; ++p) {
    if (rows[p] > 0) {
      batch_rows_[p]->Observe(static_cast<double>(rows[p]));
      tokens_[p][k]->Increment(static_cast<double>(tokens[p]));
    }
  }
}

void Metrics::SetSource(MetricsSource source) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    source_ = std::move(source);
  }
  counting_.store(true, std::memory_order_relaxed);
}

std::vector<prometheus::MetricFamily> Metrics::Gauges() const {
  MetricsSource source;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    source = source_;
  }
  const EngineStats stats = source.stats ? source.stats() : EngineStats{};
  std::vector<MetricFamily> families = {
      Gauge("attnd_build_info", "1; the version and the device as labels.",
            {{{{"version", version_}, {"device", source.device}}, 1}}),
      Gauge("attnd_queue_depth", "Steps waiting for the engine.", {Value(stats.queued_steps)}),
      Gauge("attnd_inflight_rpcs", "Requests being served, steps of streams included.",
            {Value(inflight_.load(std::memory_order_relaxed))}),
      Gauge("attnd_inflight_bytes", "Bytes of steps being served and of their answers.",
            {Value(source.inflight_bytes ? source.inflight_bytes() : 0)}),
      Gauge("attnd_draining", "1 from SIGTERM or a call of Drain on, else 0.",
            {Value(source.draining && source.draining() ? 1 : 0)}),
  };
  Append(CacheGauges(stats), &families);
  Append(SessionMetrics(stats.store, source.baseline), &families);
  return families;
}

std::string Metrics::Expose() const {
  std::vector<MetricFamily> families = registry_.Collect();
  Append(Gauges(), &families);
  Append(MemoryMetrics(), &families);
  Append(ProcessMetrics(), &families);
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace attnd::server
