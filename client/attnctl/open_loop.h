// Sends requests at times that were fixed beforehand. Where all lanes are busy a request waits for
// one, and its latency counts from when it was due (load_record.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>

#include "absl/status/status.h"
#include "client/attnctl/arrivals.h"
#include "client/attnctl/load_record.h"

namespace attnd::attnctl {

// Nanoseconds since the load began. A test has one that it moves by hand.
class LoadClock {
 public:
  virtual ~LoadClock() = default;
  virtual int64_t NowNs() = 0;
  // Returns at `ns`, or soon after Wake().
  virtual void SleepUntilNs(int64_t ns) = 0;
  virtual void Wake() = 0;
};

// Where requests go. A lane takes one at a time.
class LoadTarget {
 public:
  virtual ~LoadTarget() = default;
  virtual int lanes() const = 0;
  // One request. Called from many threads, each with another lane.
  virtual absl::Status Send(int lane) = 0;
  // Makes the lane fit for its next request, after one that ended so; nobody's time.
  virtual void Restore(int lane, const absl::Status& status) = 0;
};

class OpenLoop {
 public:
  // Until `begin_ns` requests warm up; those that wait then are dropped, or with a load beyond the
  // server's nothing else would ever be sent. Requests that wait at `end_ns` are unstarted.
  OpenLoop(const ArrivalOptions& arrivals, int64_t begin_ns, int64_t end_ns, LoadClock* clock,
           LoadTarget* target, LoadRecorder* recorder);

  // `concurrency` requests at a time at most; returns when the last is answered.
  void Run(int concurrency);
  // Ends the load now. Any thread.
  void Stop();
  // Where the load ended, or will.
  int64_t end_ns() const { return end_ns_; }

 private:
  struct Claim {
    int64_t due_ns = 0;
    int lane = 0;
  };

  // One thread's part: takes the next request that nobody has taken, waits until it is due, sends.
  void Work();
  // False when no request is left.
  bool Take(Claim* claim);
  void SendOne(const Claim& claim);

  LoadClock* const clock_;
  LoadTarget* const target_;
  LoadRecorder* const recorder_;
  const int64_t begin_ns_;
  std::atomic<int64_t> end_ns_;

  std::mutex mutex_;
  Arrivals arrivals_;
  std::deque<int> rested_;  // free lanes, the longest idle in front
};

}  // namespace attnd::attnctl
