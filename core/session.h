// A session: per layer, the rows that the server holds for it. Handed out as shared handles;
// every member function may be called from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/clock.h"
#include "core/layer_cache.h"
#include "core/page_pool.h"
#include "core/step_plan.h"

namespace attnd {

// A session as GetSession and ListSessions report it, taken at one moment.
struct SessionInfo {
  std::string id;
  int64_t prefix_length = 0;
  int64_t max_tokens = 0;
  std::vector<int64_t> layer_lengths;
  int64_t rewind_floor = 0;
  int64_t cache_bytes = 0;
  int64_t reserved_bytes = 0;  // promised and not yet used
  int64_t create_wall_ns = 0;  // since the Unix epoch
  int64_t expire_wall_ns = 0;  // if it stays idle
  std::string affinity_key;
};

// Why a session is no longer there.
enum class SessionEnd : uint8_t { kClosed, kExpired, kEvicted };

// NOT_FOUND with the reason of the end.
absl::Status SessionEndError(const std::string& id, SessionEnd end);

// Rows held in all sessions, by kind of layer; kept by the sessions as they change.
struct TokenCounters {
  std::atomic<int64_t> local{0}, global{0}, held{0};
};

struct SessionSpec {
  std::string tenant;
  std::string id;
  int64_t prefix_length = 0;
  int64_t max_tokens = 0;  // 0: no cap
  int64_t idle_ttl_ns = 0;
  std::string affinity_key;
};

class Session {
 public:
  // `pool` and `counters` outlive the session.
  Session(SessionSpec spec, const LayerPlan& plan, int64_t max_rewind, PagePool* pool,
          TokenCounters* counters, MonotonicNs now, int64_t wall_ns);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const SessionSpec& spec() const { return spec_; }
  LayerRules Rules(int64_t layer) const;
  Account* account() { return &account_; }

  // Restarts the idle time.
  void Touch(MonotonicNs now) { last_use_.store(now, std::memory_order_relaxed); }
  // Likewise for a call that may be refused: of a session that has moved away nothing but the TTL
  // may be left to end it, and its client keeps asking.
  void TouchUnlessMoved(MonotonicNs now) {
    if (!moved_.load(std::memory_order_relaxed)) {
      Touch(now);
    }
  }
  // A queued or running step holds the session: while held it is not idle.
  void Hold() { holds_.fetch_add(1, std::memory_order_relaxed); }
  void Unhold(MonotonicNs now) {
    TouchUnlessMoved(now);
    holds_.fetch_sub(1, std::memory_order_release);  // whoever finds it let go sees the use
  }
  bool held() const { return holds_.load(std::memory_order_acquire) > 0; }
  // When it expires if it stays idle.
  MonotonicNs expiry() const;

  // OK while the session is there.
  absl::Status Alive() const;
  // OK while it is there and takes steps; SESSION_MOVING.
  absl::Status Open() const;

  // From now on steps wait outside. The number of the move; SESSION_MOVING while an earlier one is
  // under way.
  absl::StatusOr<int64_t> BeginMove();
  // The move's stream has ended: all of it was sent, and whoever has it closes the session; or it
  // failed, and the session takes steps again.
  void EndMove(bool sent);
  // What was sent of the move did not arrive: the session takes steps again, unless a later move
  // has begun.
  void TakeMoveBack(int64_t move, MonotonicNs now);

  // The layer's cache, sharing its pages.
  LayerCache Cache(int64_t layer) const;
  // All layers' at one moment, likewise; the error when the session has ended.
  absl::StatusOr<std::vector<LayerCache>> Caches() const;
  int64_t Length(int64_t layer) const;
  // Puts the caches of some layers in place, all at once; the error when the session has ended.
  absl::Status Commit(std::vector<std::pair<int64_t, LayerCache>> caches);

  // Likewise all layers'.
  absl::Status CommitAll(std::vector<LayerCache> caches);

  // Ends the session: its pages go back, and with the last handle its promise. Returns the bytes
  // that it held, or -1 when it had ended before.
  int64_t End(SessionEnd reason);

  // Bytes of the pages that it holds, shared ones too.
  int64_t CacheBytes() const;
  MonotonicNs last_use() const { return last_use_.load(std::memory_order_relaxed); }

  SessionInfo Info(MonotonicNs now, int64_t wall_ns) const;

 private:
  void CountTokens(int64_t layer, const LayerCache& cache, int64_t sign);
  int64_t CacheBytesLocked() const;

  const SessionSpec spec_;
  const LayerPlan& plan_;
  const int64_t max_rewind_;
  PagePool* const pool_;
  TokenCounters* const counters_;
  const int64_t create_wall_ns_;
  std::atomic<MonotonicNs> last_use_;
  std::atomic<int64_t> holds_{0};
  std::atomic<bool> moved_{false};  // a move was sent, and not taken back
  Account account_;                 // guarded by the pool

  mutable std::mutex mutex_;  // before the pool's
  std::vector<LayerCache> caches_;
  bool ended_ = false;
  SessionEnd end_ = SessionEnd::kClosed;
  int64_t moves_ = 0;            // begun so far
  bool moving_ = false;          // steps wait outside
  bool move_streaming_ = false;  // a move's stream is open
};

}  // namespace attnd
