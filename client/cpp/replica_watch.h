// Which replica answers behind a balancer: a session is unknown at another one until it has moved
// there.
#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <string>

namespace attnd::client {

// Thread-safe.
class ReplicaWatch {
 public:
  // `id`: the metadata attnd-server of an answer.
  void Note(const std::string& id);
  // No answer came, or one of a server that stops.
  void NoteBroken();
  // Whether another replica than before answers, and does so since less than `wait`; or than
  // `broken_wait` where the one before did not answer at the end: it has probably died.
  bool ChangedWithin(std::chrono::milliseconds wait, std::chrono::milliseconds broken_wait) const;

 private:
  mutable std::mutex mutex_;
  std::string id_;
  bool broken_ = false;  // since the last answer
  bool died_ = false;    // so it was when the replica changed
  std::optional<std::chrono::steady_clock::time_point> changed_;
};

}  // namespace attnd::client
