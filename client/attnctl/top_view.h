// What servers did between two readings of their metrics.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "client/attnctl/top_counts.h"

namespace attnd::attnctl {

// A server, or several added up, over one interval.
struct ServerView {
  std::string address;
  absl::Status status;  // not OK: it cannot be read now, and the rest is empty
  double seconds = 0;   // of the interval; 0 after the first reading, which has no rates
  bool restarted = false;
  double start_time = 0;
  ServerGauges gauges;
  ServerCounts counts;  // in the interval

  double PerSecond(double count) const { return seconds > 0 ? count / seconds : 0; }
};

// The readings of one server, one after another.
class ServerTrack {
 public:
  explicit ServerTrack(std::string address) : address_(std::move(address)) {}

  // Takes a reading made at `now_s`, of a clock that never goes back. After a restart the
  // counts are those since it, over the whole interval.
  ServerView Take(const absl::StatusOr<ServerReading>& reading, double now_s);

 private:
  const std::string address_;
  std::optional<ServerReading> before_;
  double before_s_ = 0;
};

// All that could be read, added up: the rates of the whole are the sum of the rates. Its interval
// is the longest; who was read over a shorter one counts as if it had gone on so.
ServerView Total(const std::vector<ServerView>& servers);

}  // namespace attnd::attnctl
