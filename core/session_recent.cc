// The part of the store that finds the sessions used most recently, without holding up their steps.
#include <algorithm>
#include <chrono>
#include <thread>

#include "core/session_store.h"

namespace attnd {
namespace {

// Sessions that are looked at with the lock held.
constexpr int kLookedAtOnce = 256;
// Without the lock in between: long enough for another thread to wake up and take it.
constexpr std::chrono::microseconds kPause{100};

}  // namespace

std::vector<std::shared_ptr<Session>> SessionStore::MostRecent(int64_t count) const {
  using Used = std::pair<MonotonicNs, std::shared_ptr<Session>>;
  const auto later = [](const Used& a, const Used& b) { return a.first > b.first; };
  std::vector<Used> recent;  // a heap with the longest idle in front
  Key last;                  // looked at; before all keys, for no id is empty
  for (bool more = count > 0; more;) {
    std::vector<Used> dropped;  // a last handle gives memory back: not under the lock
    {
      const std::lock_guard lock(mutex_);
      auto it = sessions_.upper_bound(last);
      for (int i = 0; i < kLookedAtOnce && it != sessions_.end(); ++i, ++it) {
        const MonotonicNs use = it->second.session->last_use();
        if (static_cast<int64_t>(recent.size()) < count) {
          recent.emplace_back(use, it->second.session);
        } else if (use > recent.front().first) {
          std::pop_heap(recent.begin(), recent.end(), later);
          dropped.push_back(std::exchange(recent.back(), {use, it->second.session}));
        } else {
          continue;
        }
        std::push_heap(recent.begin(), recent.end(), later);
      }
      more = it != sessions_.end();
      if (more) {
        last = std::prev(it)->first;
      }
    }
    if (more) {
      std::this_thread::sleep_for(kPause);
    }
  }
  std::sort_heap(recent.begin(), recent.end(), later);
  std::vector<std::shared_ptr<Session>> sessions;
  sessions.reserve(recent.size());
  for (Used& used : recent) {
    sessions.push_back(std::move(used.second));
  }
  return sessions;
}

}  // namespace attnd
