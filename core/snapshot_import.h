// A session that arrives: made with all its pages, filled as its bytes come, and found by nobody
// until all of them are there. Vanishes with its handle before that.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/layer_cache.h"
#include "core/layer_plan.h"
#include "core/page_pool.h"
#include "core/session_store.h"
#include "core/snapshot_state.h"
#include "kernels/backend.h"

namespace attnd {

class SnapshotImport {
 public:
  // FORMAT_MISMATCH (a state that no session can be in), CACHE_FULL, and the errors of
  // SessionStore::Prepare(). All but the state outlive it.
  static absl::StatusOr<std::unique_ptr<SnapshotImport>> Begin(const LayerPlan& plan,
                                                               PagePool* pool, SessionStore* store,
                                                               const SnapshotState& state);

  int64_t bytes() const { return bytes_; }  // expected
  int64_t received() const { return received_; }

  // The next bytes, no more than are missing. By whoever may use the backend; the bytes may be
  // changed when it returns.
  void Write(std::string_view bytes, kernels::Backend* backend);

  // All bytes are there: the session takes steps from now on, once. SESSION_EXISTS.
  absl::StatusOr<SessionInfo> Publish();

 private:
  SnapshotImport(const LayerPlan& plan, PagePool* pool, SessionStore* store)
      : plan_(plan), pool_(pool), store_(store) {}
  absl::Status TakePages(const SnapshotState& state);

  const LayerPlan& plan_;
  PagePool* const pool_;
  SessionStore* const store_;
  SessionStore::Prepared session_;  // before what is held for it
  std::vector<LayerCache> caches_;
  std::vector<SnapshotPage> pages_;
  std::vector<int64_t> offsets_;  // of pages_, in the pool
  int64_t bytes_ = 0;
  int64_t received_ = 0;
  size_t next_page_ = 0;
  std::string partial_;  // of the next page
};

}  // namespace attnd
