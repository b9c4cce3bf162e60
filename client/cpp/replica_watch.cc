#include "client/cpp/replica_watch.h"

#include <algorithm>

namespace attnd::client {

void ReplicaWatch::Note(const std::string& id) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (id != id_ && !id_.empty()) {
    changed_ = std::chrono::steady_clock::now();
    died_ = broken_;
  }
  id_ = id;
  broken_ = false;
}

void ReplicaWatch::NoteBroken() {
  std::lock_guard<std::mutex> lock(mutex_);
  broken_ = true;
}

bool ReplicaWatch::ChangedWithin(std::chrono::milliseconds wait,
                                 std::chrono::milliseconds broken_wait) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const std::chrono::milliseconds limit = died_ ? std::min(wait, broken_wait) : wait;
  return changed_.has_value() && std::chrono::steady_clock::now() - *changed_ < limit;
}

}  // namespace attnd::client
