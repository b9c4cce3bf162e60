// What a load measures, request by request.
#include "client/attnctl/load_record.h"

#include <algorithm>

#include "client/cpp/error.h"

namespace attnd::attnctl {

std::string ErrorName(const absl::Status& status) {
  const std::string reason = client::ErrorOf(status).reason;
  return absl::StatusCodeToString(status.code()) + (reason.empty() ? "" : " " + reason);
}

double LoadResult::AnsweredPerSecond(int64_t begin_ns, int64_t end_ns) const {
  const int64_t ns = std::max(end_ns, last_end_ns) - begin_ns;
  return ns > 0 ? static_cast<double>(counts.answered) * 1e9 / static_cast<double>(ns) : 0;
}

LoadInterval* LoadRecorder::IntervalOf(int64_t due_ns) {
  if (interval_ns_ == 0) {
    return nullptr;
  }
  const auto index = static_cast<size_t>((due_ns - begin_ns_) / interval_ns_);
  if (index >= intervals_.size()) {
    intervals_.resize(index + 1);
  }
  return &intervals_[index];
}

void LoadRecorder::Add(const LoadAttempt& attempt) {
  if (attempt.due_ns < begin_ns_) {
    return;
  }
  const bool late = attempt.start_ns - attempt.due_ns > kLateNs;
  const int64_t latency = attempt.end_ns - attempt.due_ns;
  const auto count = [&](LoadCounts* counts, LatencyHistogram* histogram) {
    ++counts->due;
    counts->late += late ? 1 : 0;
    if (attempt.status.ok()) {
      ++counts->answered;
      histogram->Add(latency);
    } else {
      ++counts->failed;
    }
  };
  const std::lock_guard<std::mutex> lock(mutex_);
  count(&result_.counts, &result_.latency);
  if (LoadInterval* interval = IntervalOf(attempt.due_ns); interval != nullptr) {
    count(&interval->counts, &interval->latency);
  }
  if (!attempt.status.ok()) {
    ++result_.errors[ErrorName(attempt.status)];
    return;
  }
  result_.service.Add(attempt.end_ns - attempt.start_ns);
  result_.last_end_ns = std::max(result_.last_end_ns, attempt.end_ns);
}

void LoadRecorder::AddUnstarted(int64_t due_ns, int64_t now_ns) {
  if (due_ns < begin_ns_) {
    return;
  }
  const auto count = [&](LoadCounts* counts, LatencyHistogram* histogram) {
    ++counts->due;
    ++counts->unstarted;
    histogram->Add(now_ns - due_ns);
  };
  const std::lock_guard<std::mutex> lock(mutex_);
  count(&result_.counts, &result_.latency);
  if (LoadInterval* interval = IntervalOf(due_ns); interval != nullptr) {
    count(&interval->counts, &interval->latency);
  }
}

LoadResult LoadRecorder::Result() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  LoadResult result = result_;
  result.intervals = intervals_;
  return result;
}

LoadResult LoadRecorder::ResultSoFar() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return result_;
}

}  // namespace attnd::attnctl
