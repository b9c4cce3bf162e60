// A line on stderr for each request whose caller records its trace.
#include "server/request_log.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "grpcpp/server_context.h"
#include "server/status_map.h"

namespace attnd::server {
namespace {

// Records that wait for the thread, some 200 bytes each.
constexpr size_t kMaxWaiting = 8192;

std::string Microseconds(int64_t ns) { return std::to_string(ns / 1000); }

void AddRun(const StepRun& run, Log::Fields* fields) {
  fields->emplace_back("sequences", std::to_string(run.sequences));
  if (run.kind != StepKind::kOperation) {
    fields->emplace_back("layer", std::to_string(run.layer));
    fields->emplace_back("rows", std::to_string(run.rows));
    fields->emplace_back("failed", std::to_string(run.failed));
    fields->emplace_back("batch_rows", std::to_string(run.timing.batch_rows));
  }
  fields->emplace_back("queue_us", Microseconds(run.timing.queue_ns));
  fields->emplace_back("compute_us", Microseconds(run.timing.compute_ns));
}

}  // namespace

Log::Fields RequestFields(const RequestRecord& record) {
  Log::Fields fields = {{"trace_id", record.parent->trace_id},
                        {"span_id", record.parent->span_id},
                        {"method", MethodName(record.method)},
                        {"code", CodeName(record.code)}};
  if (*record.reason != '\0') {
    fields.emplace_back("reason", record.reason);
  }
  if (record.step_id.has_value()) {
    fields.emplace_back("step_id", std::to_string(*record.step_id));
  }
  if (record.steps.has_value()) {
    fields.emplace_back("steps", std::to_string(*record.steps));
  }
  if (record.run.has_value()) {
    AddRun(*record.run, &fields);
  }
  fields.emplace_back("total_us", Microseconds(record.total_ns));
  return fields;
}

RequestLog::RequestLog(const Log& log, bool on) : log_(log), on_(on) {
  if (on_) {
    thread_ = std::thread([this] { Loop(); });
  }
}

RequestLog::~RequestLog() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void RequestLog::Add(RequestRecord record) {
  if (!on_) {
    return;
  }
  bool first = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (waiting_.size() >= kMaxWaiting) {
      ++dropped_;
      return;
    }
    first = waiting_.empty();
    waiting_.push_back(std::move(record));
  }
  if (first) {
    changed_.notify_all();
  }
}

void RequestLog::Flush() {
  if (!on_) {
    return;
  }
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return waiting_.empty() && !writing_; });
}

void RequestLog::Loop() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
    if (waiting_.empty()) {
      return;
    }
    const std::vector<RequestRecord> records = std::exchange(waiting_, {});
    const int64_t dropped = std::exchange(dropped_, 0);
    writing_ = true;
    lock.unlock();
    for (const RequestRecord& record : records) {
      log_.Info(record.steps.has_value() ? "stream" : "request", RequestFields(record));
    }
    if (dropped > 0) {
      log_.Warn("requests_dropped", {{"count", std::to_string(dropped)},
                                     {"note", "more requests were sampled than stderr takes"}});
    }
    lock.lock();
    if (dropped > 0 && Log::Blocked()) {
      dropped_ += dropped;  // nobody was told
    }
    writing_ = false;
    changed_.notify_all();
  }
}

RequestTrace::RequestTrace(RequestLog& log, const grpc::CallbackServerContext& context)
    : log_(&log) {
  if (!log.on()) {
    return;
  }
  const auto [begin, end] = context.client_metadata().equal_range("traceparent");
  if (begin == end || std::next(begin) != end) {
    return;  // none, or several: nobody knows which is meant
  }
  std::optional<TraceParent> parent =
      ParseTraceParent({begin->second.data(), begin->second.size()});
  if (parent.has_value() && parent->sampled) {
    parent_ = std::make_shared<const TraceParent>(*std::move(parent));
  }
}

void RequestTrace::Ran(const Step& step) {
  if (parent_ == nullptr) {
    return;
  }
  StepRun& run = run_.emplace();
  run.kind = step.kind;
  run.layer = step.layer;
  run.sequences = static_cast<int64_t>(step.sequences.size());
  run.failed = std::count_if(step.sequences.begin(), step.sequences.end(),
                             [](const SequenceStep& sequence) { return !sequence.status.ok(); });
  run.rows = step.rows();
  run.timing = step.timing;
}

RequestRecord RequestTrace::Record(Method method, const absl::Status& status,
                                   int64_t total_ns) const {
  RequestRecord record;
  record.parent = parent_;
  record.method = method;
  if (!status.ok()) {
    record.code = ReasonCode(WireReason(status));
    record.reason = ReasonName(WireReason(status));
  }
  record.total_ns = total_ns;
  record.run = run_;
  return record;
}

void RequestTrace::Ended(Method method, const absl::Status& status, int64_t total_ns,
                         std::optional<uint64_t> step_id) const {
  if (parent_ == nullptr) {
    return;
  }
  RequestRecord record = Record(method, status, total_ns);
  record.step_id = step_id;
  log_->Add(std::move(record));
}

void RequestTrace::StreamEnded(const absl::Status& status, int64_t total_ns, int64_t steps) const {
  if (parent_ == nullptr) {
    return;
  }
  RequestRecord record = Record(Method::kSteps, status, total_ns);
  record.steps = steps;
  log_->Add(std::move(record));
}

}  // namespace attnd::server
