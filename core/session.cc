#include "core/session.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace attnd {

namespace {

// A move takes as long as its session's bytes on the wire.
constexpr int64_t kMovingRetryMs = 100;

absl::Status MovingError(const std::string& id) {
  return MakeRetryableError(Reason::kSessionMoving,
                            "session '" + id + "' is being moved to another server",
                            kMovingRetryMs);
}

}  // namespace

absl::Status SessionEndError(const std::string& id, SessionEnd end) {
  switch (end) {
    case SessionEnd::kClosed:
      return MakeError(Reason::kSessionClosed, "session '" + id + "' was closed");
    case SessionEnd::kExpired:
      return MakeError(Reason::kSessionExpired,
                       "session '" + id + "' was idle longer than its idle_ttl");
    case SessionEnd::kEvicted:
      return MakeError(Reason::kSessionEvicted, "session '" + id + "' was evicted for its memory");
  }
  return MakeError(Reason::kInternal, "unknown end of session '" + id + "'");
}

Session::Session(SessionSpec spec, const LayerPlan& plan, int64_t max_rewind, PagePool* pool,
                 TokenCounters* counters, MonotonicNs now, int64_t wall_ns)
    : spec_(std::move(spec)),
      plan_(plan),
      max_rewind_(max_rewind),
      pool_(pool),
      counters_(counters),
      create_wall_ns_(wall_ns),
      last_use_(now),
      caches_(plan.layers.size()) {}

// The promise lasts as long as any step of the session: until then others may hold its pages too,
// and what they would be charged for is covered by it.
Session::~Session() {
  End(SessionEnd::kClosed);
  pool_->Promise(&account_, PerKind{}).IgnoreError();  // taking a promise back cannot fail
}

LayerRules Session::Rules(int64_t layer) const {
  LayerRules rules;
  rules.kind = plan_.layers[static_cast<size_t>(layer)];
  rules.window = rules.kind == LayerKind::kLocal ? plan_.local.window : 0;
  rules.max_rewind = max_rewind_;
  rules.prefix = spec_.prefix_length;
  return rules;
}

MonotonicNs Session::expiry() const {
  const MonotonicNs last = last_use_.load(std::memory_order_relaxed);
  return last > kNever - spec_.idle_ttl_ns ? kNever : last + spec_.idle_ttl_ns;
}

absl::Status Session::Alive() const {
  std::lock_guard lock(mutex_);
  return ended_ ? SessionEndError(spec_.id, end_) : absl::OkStatus();
}

absl::Status Session::Open() const {
  std::lock_guard lock(mutex_);
  if (ended_) {
    return SessionEndError(spec_.id, end_);
  }
  return moving_ ? MovingError(spec_.id) : absl::OkStatus();
}

absl::StatusOr<int64_t> Session::BeginMove() {
  std::lock_guard lock(mutex_);
  if (ended_) {
    return SessionEndError(spec_.id, end_);
  }
  if (move_streaming_) {
    return MovingError(spec_.id);
  }
  moving_ = true;
  move_streaming_ = true;
  return ++moves_;
}

void Session::EndMove(bool sent) {
  std::lock_guard lock(mutex_);
  move_streaming_ = false;
  moving_ = sent;
  moved_.store(sent, std::memory_order_relaxed);
}

void Session::TakeMoveBack(int64_t move, MonotonicNs now) {
  std::lock_guard lock(mutex_);
  if (move == moves_ && !move_streaming_ && moving_) {
    moving_ = false;
    moved_.store(false, std::memory_order_relaxed);
    Touch(now);
  }
}

absl::StatusOr<std::vector<LayerCache>> Session::Caches() const {
  std::lock_guard lock(mutex_);
  if (ended_) {
    return SessionEndError(spec_.id, end_);
  }
  return caches_;
}

LayerCache Session::Cache(int64_t layer) const {
  std::lock_guard lock(mutex_);
  return ended_ ? LayerCache{} : caches_[static_cast<size_t>(layer)];
}

int64_t Session::Length(int64_t layer) const {
  std::lock_guard lock(mutex_);
  return ended_ ? 0 : caches_[static_cast<size_t>(layer)].length;
}

absl::Status Session::Commit(std::vector<std::pair<int64_t, LayerCache>> caches) {
  std::lock_guard lock(mutex_);
  if (ended_) {
    return SessionEndError(spec_.id, end_);
  }
  for (auto& [layer, cache] : caches) {
    LayerCache& current = caches_[static_cast<size_t>(layer)];
    CountTokens(layer, current, -1);
    current = std::move(cache);
    CountTokens(layer, current, +1);
  }
  return absl::OkStatus();
}

absl::Status Session::CommitAll(std::vector<LayerCache> caches) {
  std::vector<std::pair<int64_t, LayerCache>> layers;
  for (LayerCache& cache : caches) {
    layers.emplace_back(static_cast<int64_t>(layers.size()), std::move(cache));
  }
  return Commit(std::move(layers));
}

int64_t Session::End(SessionEnd reason) {
  std::lock_guard lock(mutex_);
  if (ended_) {
    return -1;
  }
  ended_ = true;
  end_ = reason;
  const int64_t bytes = CacheBytesLocked();
  for (size_t layer = 0; layer < caches_.size(); ++layer) {
    CountTokens(static_cast<int64_t>(layer), caches_[layer], -1);
  }
  caches_.clear();
  return bytes;
}

int64_t Session::CacheBytes() const {
  std::lock_guard lock(mutex_);
  return CacheBytesLocked();
}

int64_t Session::CacheBytesLocked() const {
  int64_t bytes = 0;
  for (size_t layer = 0; layer < caches_.size(); ++layer) {
    const PerKind pages = caches_[layer].Pages(plan_.layers[layer]);
    for (int kind = 0; kind < kNumPageKinds; ++kind) {
      bytes += pages[kind] * pool_->page_bytes(static_cast<PageKind>(kind));
    }
  }
  return bytes;
}

void Session::CountTokens(int64_t layer, const LayerCache& cache, int64_t sign) {
  const bool local = plan_.layers[static_cast<size_t>(layer)] == LayerKind::kLocal;
  std::atomic<int64_t>& counter = local ? counters_->local : counters_->global;
  counter.fetch_add(sign * cache.TokensHeld(), std::memory_order_relaxed);
  counters_->held.fetch_add(sign * cache.held_rows, std::memory_order_relaxed);
}

SessionInfo Session::Info(MonotonicNs now, int64_t wall_ns) const {
  SessionInfo info;
  info.id = spec_.id;
  info.prefix_length = spec_.prefix_length;
  info.max_tokens = spec_.max_tokens;
  info.affinity_key = spec_.affinity_key;
  info.create_wall_ns = create_wall_ns_;
  const MonotonicNs left = std::max<int64_t>(0, expiry() - now);
  info.expire_wall_ns = left > kNever - wall_ns ? kNever : wall_ns + left;
  std::lock_guard lock(mutex_);
  for (size_t layer = 0; layer < caches_.size(); ++layer) {
    const LayerCache& cache = caches_[layer];
    info.layer_lengths.push_back(cache.length);
    info.rewind_floor =
        std::max(info.rewind_floor, RewindFloor(cache, Rules(static_cast<int64_t>(layer))));
  }
  info.cache_bytes = CacheBytesLocked();
  info.reserved_bytes = pool_->UnusedPromiseBytes(account_);
  return info;
}

}  // namespace attnd
