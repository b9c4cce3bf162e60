// All sessions of the server by tenant and id: creation, forks, look-up, expiry, eviction, and for
// a while the reason why a session is no longer there. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/clock.h"
#include "core/session.h"

namespace attnd {

struct CreateOptions {
  std::string tenant;
  std::string id;  // empty: an unguessable one is made
  int64_t prefix_length = 0;
  int64_t max_tokens = 0;    // > 0: reserve, and the cap
  int64_t idle_ttl_ns = -1;  // < 0: the default; else > 0
  std::string affinity_key;
};

struct ForkOptions {
  std::string id;            // empty: an unguessable one is made
  int64_t position = 0;      // the fork holds [0, position); 0: each layer as it is
  int64_t max_tokens = 0;    // > 0: reserve, and the cap
  int64_t idle_ttl_ns = -1;  // < 0: the default; else > 0
};

struct SessionPage {
  std::vector<SessionInfo> sessions;  // by id
  std::string next_page_token;        // empty: this is the last page
};

// Counts of one moment.
struct StoreStats {
  int64_t sessions = 0;
  int64_t created = 0;                                           // since the start
  int64_t closed = 0, expired = 0, evicted = 0;                  // since the start, by reason
  int64_t tokens_local = 0, tokens_global = 0, tokens_held = 0;  // rows held, all layers
};

struct StoreLimits {
  int64_t max_rewind = 64;
  int64_t idle_ttl_ns = 0;      // where the client asks for none
  int64_t max_idle_ttl_ns = 0;  // the longest that a client may ask for
  int64_t max_sessions = 0;
  int64_t chunk_rows = 0;   // of a running prefill; part of what a session reserves
  bool evict_idle = false;  // when memory is short, idle unreserved sessions end
};

// OK for `[A-Za-z0-9._-]{1,128}`, else BAD_SESSION_ID.
absl::Status CheckSessionId(const std::string& id);

class SessionStore {
 public:
  // The references outlive the store.
  SessionStore(const LayerPlan& plan, const StoreLimits& limits, PagePool* pool,
               const Clock& clock);

  // SESSION_EXISTS, TOO_MANY_SESSIONS, CACHE_FULL (the reservation), BAD_SESSION_ID,
  // BAD_ARGUMENT (prefix_length, max_tokens or idle_ttl out of range).
  absl::StatusOr<SessionInfo> Create(const CreateOptions& options);
  // A session that continues where `parent` is, or was at an earlier position, sharing its pages.
  // As Create(), and the errors of ForkCaches(), PAST_MAX_TOKENS. Between steps of the parent.
  absl::StatusOr<SessionInfo> Fork(const Session& parent, const ForkOptions& options);

  // Create() in two halves, for a session that is filled before anybody sees it: makes the session
  // with its reservation, and lets it be found. In between it is nobody's, counts as one of
  // max_sessions, and vanishes with its handle, which the store outlives.
  class Prepared;
  absl::StatusOr<Prepared> Prepare(const CreateOptions& options);
  absl::StatusOr<SessionInfo> Publish(Prepared prepared);

  // The session, its idle time restarted unless it has moved away; NOT_FOUND with the reason.
  absl::StatusOr<std::shared_ptr<Session>> Find(const std::string& tenant, const std::string& id);
  absl::StatusOr<SessionInfo> Get(const std::string& tenant, const std::string& id);
  // Up to `page_size` sessions of the tenant after the token; does not restart idle times.
  absl::StatusOr<SessionPage> List(const std::string& tenant, int64_t page_size,
                                   const std::string& page_token) const;
  // The `count` most recently used sessions of all tenants, the latest first. For people: looks at
  // all sessions, a few hundred at a time, so that nobody waits for the lock. Does not restart idle
  // times.
  std::vector<std::shared_ptr<Session>> MostRecent(int64_t count) const;
  // The bytes that it held.
  absl::StatusOr<int64_t> Close(const std::string& tenant, const std::string& id);

  // Ends what has been idle for longer than its TTL, a few sessions at a time: those that expire
  // together do not keep steps waiting. Returns how many; next_expiry() says whether to go on.
  int64_t ReapExpired();
  // Ends some of what has expired; if that is nothing, and eviction is on, unreserved sessions
  // without a step under way, the longest idle first, until they held so many bytes. False when
  // none ended.
  bool MakeRoom(int64_t bytes);
  // When ReapExpired() should be called next; kNever when there is nothing to expire.
  MonotonicNs next_expiry() const;

  // Called after a session was added whose expiry comes before next_expiry() said so far; from
  // the creating thread.
  void SetExpiryListener(std::function<void()> listener) { expiry_listener_ = std::move(listener); }
  // Called after a session has ended, from the ending thread, with no lock held.
  void SetEndListener(std::function<void()> listener) { end_listener_ = std::move(listener); }

  StoreStats stats() const;

 private:
  using Key = std::pair<std::string, std::string>;  // tenant, id

  absl::Status CheckOptions(const CreateOptions& options) const;
  absl::Status CheckRoomFor(const Key& key, int64_t preparing) const;
  int64_t EvictIdle(int64_t bytes);
  void ListIdle();
  absl::Status NotFound(const Key& key) const;
  void Remember(const Key& key, SessionEnd end);
  void CountEnd(SessionEnd end);

  const LayerPlan& plan_;
  const StoreLimits limits_;
  PagePool* const pool_;
  const Clock& clock_;
  std::function<void()> expiry_listener_;
  std::function<void()> end_listener_;
  TokenCounters tokens_;

  // When to look at a session again. Its true expiry may have moved on by then; it is looked at
  // once per TTL, so that a call restarts the idle time without touching this queue.
  using Expiries = std::multimap<MonotonicNs, Key>;
  struct Entry {
    std::shared_ptr<Session> session;
    Expiries::iterator expiry;
  };

  mutable std::mutex mutex_;
  std::map<Key, Entry> sessions_;
  Expiries expiries_;
  // Idle unreserved sessions when all were last looked at, the longest idle at the end: looking at
  // 50,000 for each page took 10 ms, with every call waiting. Whoever was used since is passed
  // over; whoever is not listed was used after them all.
  std::vector<std::pair<MonotonicNs, Key>> idle_;
  // The reasons of the most recent ends, numbered: an id that is used again has its entry of old in
  // the order still.
  struct RecentEnd {
    SessionEnd end;
    int64_t number;
  };
  std::map<Key, RecentEnd> ends_;
  std::deque<std::pair<Key, int64_t>> end_order_;
  int64_t end_number_ = 0;
  int64_t preparing_ = 0;  // sessions that nobody finds yet
  int64_t created_ = 0, closed_ = 0, expired_ = 0, evicted_ = 0;
};

class SessionStore::Prepared {
 public:
  Prepared() = default;
  Session* operator->() const { return session_.get(); }

 private:
  friend class SessionStore;
  struct Leave {
    void operator()(SessionStore* store) const {
      const std::lock_guard<std::mutex> lock(store->mutex_);
      --store->preparing_;
    }
  };

  std::unique_ptr<SessionStore, Leave> place_;  // among max_sessions
  std::shared_ptr<Session> session_;
};

}  // namespace attnd
