// A server's readings compared, and the servers' sum.
#include "client/attnctl/top_view.h"

#include <algorithm>

namespace attnd::attnctl {

ServerView ServerTrack::Take(const absl::StatusOr<ServerReading>& reading, double now_s) {
  ServerView view;
  view.address = address_;
  view.status = reading.status();
  if (!reading.ok()) {
    return view;  // what came before is kept: the next reading covers the gap
  }
  view.gauges = reading->gauges;
  view.start_time = reading->start_time;
  if (before_.has_value()) {
    view.seconds = now_s - before_s_;
    view.restarted = Restarted(*before_, *reading);
    view.counts = reading->counts.Since(view.restarted ? ServerCounts() : before_->counts);
  }
  before_ = *reading;
  before_s_ = now_s;
  return view;
}

ServerView Total(const std::vector<ServerView>& servers) {
  ServerView total;
  int64_t read = 0;
  for (const ServerView& view : servers) {
    if (view.status.ok()) {
      ++read;
      total.seconds = std::max(total.seconds, view.seconds);
      total.gauges.Add(view.gauges);
    }
  }
  for (const ServerView& view : servers) {
    if (view.status.ok() && view.seconds > 0) {
      total.counts.Add(view.counts, total.seconds / view.seconds);
    }
  }
  total.address = std::to_string(read) + " of " + std::to_string(servers.size()) + " servers";
  return total;
}

}  // namespace attnd::attnctl
