// A session at one moment, for export: its state, and its pages, which stay as they are while the
// session goes on (steps copy what others hold too).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/clock.h"
#include "core/layer_cache.h"
#include "core/layer_plan.h"
#include "core/page_pool.h"
#include "core/session.h"
#include "core/snapshot_state.h"
#include "kernels/backend.h"

namespace attnd {

// What a session's pages are part of; outlives the snapshot.
struct SnapshotSource {
  const LayerPlan& plan;
  DType cache_dtype;
  PagePool* pool;
  const Clock& clock;
};

// A move whose bytes were all sent. Keeps nothing of the session.
class SentMove {
 public:
  SentMove() = default;
  SentMove(std::weak_ptr<Session> session, int64_t move)
      : session_(std::move(session)), move_(move) {}
  // They did not arrive: see Session::TakeMoveBack().
  void TakeBack(MonotonicNs now) const;

 private:
  std::weak_ptr<Session> session_;
  int64_t move_ = 0;
};

class Snapshot {
 public:
  // Between steps of the session. With `move` the session takes no steps from now on, and pages
  // cost nobody's promise anything; else CACHE_FULL when the session's reservation could not be
  // kept beside the copy. SESSION_MOVING; the session's end.
  static absl::StatusOr<std::unique_ptr<Snapshot>> Take(const SnapshotSource& source,
                                                        std::shared_ptr<Session> session,
                                                        bool move);
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  const SnapshotState& state() const { return state_; }
  int64_t bytes() const { return bytes_; }

  // The next `max` bytes, fewer at the end, none behind it. By whoever may use the backend.
  std::string Read(int64_t max, kernels::Backend* backend);

  // All was sent, and from the end of the snapshot on a move stays one until the session is closed,
  // or until it is taken back. Otherwise the end of the snapshot has the session take steps again.
  SentMove SetSent();

 private:
  Snapshot(const SnapshotSource& source, std::shared_ptr<Session> session, bool move);
  absl::Status TakePages();
  void ReadPage(kernels::Backend* backend);

  const SnapshotSource source_;
  const std::shared_ptr<Session> session_;
  const bool move_;
  int64_t move_number_ = 0;  // 0: none is under way
  bool sent_ = false;
  SnapshotState state_;
  int64_t bytes_ = 0;
  Account account_;  // before what is held for it
  std::vector<LayerCache> caches_;
  std::vector<SnapshotPage> pages_;
  std::vector<int64_t> offsets_;  // of pages_, in the pool
  size_t next_page_ = 0;
  std::string read_;  // of pages before next_page_, not handed out yet
};

}  // namespace attnd
