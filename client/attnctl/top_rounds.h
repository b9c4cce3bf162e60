// Readings of several servers at a time, in the background.
#pragma once

#include <future>
#include <string>
#include <vector>

#include "client/attnctl/metrics_fetch.h"
#include "client/attnctl/top_view.h"

namespace attnd::attnctl {

class TopRounds {
 public:
  explicit TopRounds(const std::vector<HttpTarget>& targets);
  // Waits for the round that is under way.
  ~TopRounds();
  TopRounds(const TopRounds&) = delete;
  TopRounds& operator=(const TopRounds&) = delete;

  // Begins to read all servers; not while a round is under way.
  void Begin();
  bool under_way() const { return round_.valid(); }
  // For poll(): readable once the round is complete.
  int fd() const { return fd_; }
  // What the round found. Waits for it.
  std::vector<ServerView> Take();

 private:
  struct Reading {
    absl::StatusOr<ServerReading> reading;
    double at_s = 0;
  };

  // Reads a server on a thread of its own.
  static std::future<Reading> Launch(const HttpTarget& target);
  static Reading ReadOne(const HttpTarget& target);

  const std::vector<HttpTarget> targets_;
  std::vector<ServerTrack> tracks_;
  std::future<std::vector<Reading>> round_;
  int fd_ = -1;
};

}  // namespace attnd::attnctl
