// All servers read at a time, on threads.
#include "client/attnctl/top_rounds.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <system_error>
#include <utility>

namespace attnd::attnctl {

namespace {

// Says at its end that the round is complete, also when it failed: Take() has the error then.
class Completion {
 public:
  explicit Completion(int fd) : fd_(fd) {}
  ~Completion() { eventfd_write(fd_, 1); }
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;

 private:
  const int fd_;
};

}  // namespace

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

std::future<TopRounds::Reading> TopRounds::Launch(const HttpTarget& target) {
  try {
    return std::async(std::launch::async, ReadOne, target);
  } catch (const std::system_error& error) {  // no thread
    std::promise<Reading> failed;
    failed.set_value({absl::ResourceExhaustedError(std::string("no thread: ") + error.what()), 0});
    return failed.get_future();
  }
}

void TopRounds::Begin() {
  round_ = std::async(std::launch::async, [this] {
    const Completion completion(fd_);
    std::vector<std::future<Reading>> parts;
    for (const HttpTarget& target : targets_) {
      parts.push_back(Launch(target));
    }
    std::vector<Reading> readings;
    for (std::future<Reading>& part : parts) {
      readings.push_back(part.get());
    }
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
