// The part of the store that ends sessions by itself: those that have expired, and idle ones when
// memory is short.
#include <algorithm>
#include <functional>

#include "core/session_store.h"

namespace attnd {
namespace {

// A held session is looked at again after this long.
constexpr int64_t kHeldRecheckNs = 1'000'000'000;
// Sessions that a call of ReapExpired() looks at: ending one takes some 10 us.
constexpr int kReapedAtOnce = 32;

}  // namespace

int64_t SessionStore::ReapExpired() {
  const MonotonicNs now = clock_.Now();
  std::vector<std::shared_ptr<Session>> ended;
  {
    std::lock_guard lock(mutex_);
    for (int i = 0; i < kReapedAtOnce && !expiries_.empty() && expiries_.begin()->first <= now;
         ++i) {
      const auto it = sessions_.find(expiries_.begin()->second);
      expiries_.erase(expiries_.begin());
      const std::shared_ptr<Session>& session = it->second.session;
      // In this order: whoever lets go of a session has used it just before.
      const bool held = session->held();
      const MonotonicNs used = session->expiry();
      const MonotonicNs expiry = held ? std::max(used, now + kHeldRecheckNs) : used;
      if (expiry > now) {
        it->second.expiry = expiries_.emplace(expiry, it->first);
        continue;
      }
      ended.push_back(session);
      Remember(it->first, SessionEnd::kExpired);
      sessions_.erase(it);
    }
  }
  for (const auto& session : ended) {
    session->End(SessionEnd::kExpired);
  }
  return static_cast<int64_t>(ended.size());
}

bool SessionStore::MakeRoom(int64_t bytes) {
  while (next_expiry() <= clock_.Now()) {
    if (ReapExpired() > 0) {  // 0: those that it looked at were used since
      return true;
    }
  }
  return limits_.evict_idle && EvictIdle(bytes) > 0;
}

void SessionStore::ListIdle() {
  for (const auto& [key, entry] : sessions_) {
    if (!entry.session->held() && entry.session->spec().max_tokens == 0) {
      idle_.emplace_back(entry.session->last_use(), key);
    }
  }
  std::sort(idle_.begin(), idle_.end(), std::greater<>());
}

int64_t SessionStore::EvictIdle(int64_t bytes) {
  std::vector<std::shared_ptr<Session>> ended;
  {
    std::lock_guard lock(mutex_);
    bool listed = false;
    while (bytes > 0) {
      if (idle_.empty()) {
        if (listed) {
          break;
        }
        ListIdle();
        listed = true;
        continue;
      }
      const auto [last_use, key] = std::move(idle_.back());
      idle_.pop_back();
      const auto found = sessions_.find(key);
      if (found == sessions_.end()) {
        continue;
      }
      Session& session = *found->second.session;
      if (session.held() || session.last_use() != last_use) {
        continue;  // used since; what was listed with it comes first
      }
      const int64_t held = session.CacheBytes();
      if (held == 0) {
        continue;
      }
      bytes -= held;
      ended.push_back(std::move(found->second.session));
      expiries_.erase(found->second.expiry);
      Remember(key, SessionEnd::kEvicted);
      sessions_.erase(found);
    }
  }
  for (const auto& session : ended) {
    session->End(SessionEnd::kEvicted);
  }
  if (!ended.empty() && end_listener_) {
    end_listener_();
  }
  return static_cast<int64_t>(ended.size());
}

}  // namespace attnd
