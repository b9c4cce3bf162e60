// What an open-loop load measures. A request's latency counts from the moment when it was due, so
// that a server that stalls is charged for the requests that could not be sent meanwhile; its
// service time counts from the moment when it was sent.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/attnctl/latency_histogram.h"

namespace attnd::attnctl {

// A request whose start is so much behind its time was late.
inline constexpr int64_t kLateNs = 1'000'000;

struct LoadCounts {
  int64_t due = 0;
  int64_t answered = 0;   // without an error
  int64_t failed = 0;     // their times are in no histogram
  int64_t late = 0;       // of those that were sent
  int64_t unstarted = 0;  // not sent before the end; `latency` has the time that they waited
};

// The requests that were due in one interval.
struct LoadInterval {
  LoadCounts counts;
  LatencyHistogram latency;
};

struct LoadResult {
  LoadCounts counts;
  LatencyHistogram latency;
  LatencyHistogram service;
  std::map<std::string, int64_t> errors;  // "RESOURCE_EXHAUSTED CACHE_FULL": how many
  std::vector<LoadInterval> intervals;
  int64_t last_end_ns = 0;  // when the last answer came

  // Requests answered a second, until the last answer where that came after the end.
  double AnsweredPerSecond(int64_t begin_ns, int64_t end_ns) const;
};

// Times are nanoseconds since the load began.
struct LoadAttempt {
  int64_t due_ns = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  absl::Status status;
};

class LoadRecorder {
 public:
  // Requests due before `begin_ns` warm up and are not counted. `interval_ns` 0: no intervals.
  LoadRecorder(int64_t begin_ns, int64_t interval_ns)
      : begin_ns_(begin_ns), interval_ns_(interval_ns) {}

  void Add(const LoadAttempt& attempt);
  // The load ended at `now_ns` before this request was sent.
  void AddUnstarted(int64_t due_ns, int64_t now_ns);

  LoadResult Result() const;
  // For a display: the result without its intervals, which may be many.
  LoadResult ResultSoFar() const;

 private:
  // The interval that the request was due in; null where none are kept. With the lock held.
  LoadInterval* IntervalOf(int64_t due_ns);

  const int64_t begin_ns_;
  const int64_t interval_ns_;
  mutable std::mutex mutex_;
  LoadResult result_;
  std::vector<LoadInterval> intervals_;
};

// "RESOURCE_EXHAUSTED CACHE_FULL", or the code alone.
std::string ErrorName(const absl::Status& status);

}  // namespace attnd::attnctl
