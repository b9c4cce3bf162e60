#include "client/attnctl/top_rounds.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <utility>

namespace attnd::attnctl {

TopRounds::TopRounds(const std::vector<HttpTarget>& targets)
    : targets_(targets), fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  for (const HttpTarget& target : targets_) {
    tracks_.emplace_back(target.Text());
  }
}

TopRounds::~TopRounds() {
  if (round_.valid()) {
    round_.wait();
  }
  close(fd_);
}

TopRounds::Reading TopRounds::ReadOne(const HttpTarget& target) {
  Reading result;
  const absl::StatusOr<std::string> text = FetchMetrics(target);
  result.at_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  if (!text.ok()) {
    result.reading = text.status();
    return result;
  }
  const auto samples = ParseMetricsText(*text);
  if (samples.ok()) {
    result.reading = ReadServer(*samples);
  } else {
    result.reading = samples.status();
  }
  return result;
}

void TopRounds::Begin() {
  round_ = std::async(std::launch::async, [this] {
    std::vector<std::future<Reading>> parts;
    for (const HttpTarget& target : targets_) {
      parts.push_back(std::async(std::launch::async, ReadOne, target));
    }
    std::vector<Reading> readings;
    for (std::future<Reading>& part : parts) {
      readings.push_back(part.get());
    }
    eventfd_write(fd_, 1);
    return readings;
  });
}

std::vector<ServerView> TopRounds::Take() {
  const std::vector<Reading> readings = round_.get();
  eventfd_t complete = 0;
  eventfd_read(fd_, &complete);
  std::vector<ServerView> views;
  for (size_t i = 0; i < readings.size(); ++i) {
    views.push_back(tracks_[i].Take(readings[i].reading, readings[i].at_s));
  }
  return views;
}

}  // namespace attnd::attnctl
