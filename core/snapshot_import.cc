// A session that arrives.
#include "core/snapshot_import.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/int_math.h"
#include "kernels/check.h"

namespace attnd {
namespace {

using kernels::kPageTokens;

CreateOptions OptionsOf(const SessionSpec& spec) {
  CreateOptions options;
  options.tenant = spec.tenant;
  options.id = spec.id;
  options.prefix_length = spec.prefix_length;
  options.max_tokens = spec.max_tokens;
  options.idle_ttl_ns = spec.idle_ttl_ns;
  options.affinity_key = spec.affinity_key;
  return options;
}

LayerCache CacheOf(const LayerState& state) {
  LayerCache cache;
  cache.length = state.length;
  cache.first = state.first;
  cache.last_step_start = state.last_step_start;
  cache.first_page = state.page_start / kPageTokens;
  cache.tail_page = state.tail_start / kPageTokens;
  cache.held_rows = state.held_rows;
  return cache;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SnapshotImport>> SnapshotImport::Begin(const LayerPlan& plan,
                                                                      PagePool* pool,
                                                                      SessionStore* store,
                                                                      const SnapshotState& state) {
  if (absl::Status status = CheckState(plan, state); !status.ok()) {
    return status;
  }
  absl::StatusOr<SessionStore::Prepared> session = store->Prepare(OptionsOf(state.spec));
  if (!session.ok()) {
    return session.status();
  }
  std::unique_ptr<SnapshotImport> import(new SnapshotImport(plan, pool, store));
  import->session_ = *std::move(session);
  if (absl::Status status = import->TakePages(state); !status.ok()) {
    return status;
  }
  return import;
}

absl::Status SnapshotImport::TakePages(const SnapshotState& state) {
  pages_ = PagesOf(plan_, state);
  bytes_ = BytesOf(pages_, *pool_);
  PerKind counts{};
  for (const SnapshotPage& page : pages_) {
    ++counts[Index(page.kind)];
  }
  std::array<PageList, kNumPageKinds> taken;
  if (absl::Status status = pool_->Take(session_->account(), counts, &taken); !status.ok()) {
    return status;
  }
  for (size_t layer = 0; layer < state.layers.size(); ++layer) {
    const LayerState& s = state.layers[layer];
    LayerCache& cache = caches_.emplace_back(CacheOf(s));
    const bool local = plan_.layers[layer] == LayerKind::kLocal;
    PageList& main = taken[Index(local ? PageKind::kLocal : PageKind::kGlobal)];
    cache.main.Append(&main, CeilDiv(std::max<int64_t>(0, s.length - s.page_start), kPageTokens));
    cache.tail.Append(&main, (s.tail_end - s.tail_start) / kPageTokens);
    cache.held.Append(&taken[Index(PageKind::kHeld)], CeilDiv(s.held_rows, kHeldPageRows));
    for (const PageList* list : {&cache.main, &cache.tail, &cache.held}) {
      offsets_.insert(offsets_.end(), list->offsets().begin(), list->offsets().end());
    }
  }
  return absl::OkStatus();
}

void SnapshotImport::Write(std::string_view bytes, kernels::Backend* backend) {
  Check(received_ + static_cast<int64_t>(bytes.size()) <= bytes_, "no more bytes than pages");
  received_ += static_cast<int64_t>(bytes.size());
  while (!bytes.empty()) {
    const auto page_bytes = static_cast<size_t>(pool_->page_bytes(pages_[next_page_].kind));
    uint8_t* const page = pool_->data() + offsets_[next_page_];
    if (partial_.empty() && bytes.size() >= page_bytes) {
      backend->Upload(page, bytes.data(), static_cast<int64_t>(page_bytes));
      bytes.remove_prefix(page_bytes);
      ++next_page_;
      continue;
    }
    const size_t part = std::min(bytes.size(), page_bytes - partial_.size());
    partial_.append(bytes.substr(0, part));
    bytes.remove_prefix(part);
    if (partial_.size() == page_bytes) {
      backend->Upload(page, partial_.data(), static_cast<int64_t>(page_bytes));
      partial_.clear();
      ++next_page_;
    }
  }
  backend->Synchronize();
}

absl::StatusOr<SessionInfo> SnapshotImport::Publish() {
  Check(received_ == bytes_, "a session is whole before it is found");
  for (size_t layer = 0; layer < caches_.size(); ++layer) {
    Trim(session_->Rules(static_cast<int64_t>(layer)), &caches_[layer]);
  }
  if (absl::Status status = session_->CommitAll(std::move(caches_)); !status.ok()) {
    return status;
  }
  return store_->Publish(std::move(session_));
}

}  // namespace attnd
