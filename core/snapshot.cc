// A session at one moment.
#include "core/snapshot.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/cache_layout.h"
#include "kernels/check.h"

namespace attnd {

Snapshot::Snapshot(const SnapshotSource& source, std::shared_ptr<Session> session, bool move)
    : source_(source), session_(std::move(session)), move_(move) {
  session_->Hold();
}

void SentMove::TakeBack(MonotonicNs now) const {
  if (const std::shared_ptr<Session> session = session_.lock(); session != nullptr) {
    session->TakeMoveBack(move_, now);
  }
}

Snapshot::~Snapshot() {
  caches_.clear();
  const MonotonicNs now = source_.clock.Now();
  if (!move_ || move_number_ > 0) {
    session_->Touch(now);  // it was not refused
  }
  if (move_number_ > 0) {
    session_->EndMove(sent_);
  }
  session_->Unhold(now);
}

SentMove Snapshot::SetSent() {
  sent_ = true;
  return move_number_ > 0 ? SentMove(session_, move_number_) : SentMove();
}

absl::StatusOr<std::unique_ptr<Snapshot>> Snapshot::Take(const SnapshotSource& source,
                                                         std::shared_ptr<Session> session,
                                                         bool move) {
  std::unique_ptr<Snapshot> snapshot(new Snapshot(source, std::move(session), move));
  if (absl::Status status = snapshot->TakePages(); !status.ok()) {
    return status;
  }
  return snapshot;
}

absl::Status Snapshot::TakePages() {
  if (move_) {
    const absl::StatusOr<int64_t> move = session_->BeginMove();
    if (!move.ok()) {
      return move.status();
    }
    move_number_ = *move;
  }
  absl::StatusOr<std::vector<LayerCache>> caches = session_->Caches();
  if (!caches.ok()) {
    return caches.status();
  }
  if (!move_) {
    caches = ShareWith(*caches, &account_, source_.pool);
    if (!caches.ok()) {
      return caches.status();
    }
  }
  caches_ = *std::move(caches);
  state_.spec = session_->spec();
  for (const LayerCache& cache : caches_) {
    state_.layers.push_back(StateOf(cache));
    for (const PageList* list : {&cache.main, &cache.tail, &cache.held}) {
      offsets_.insert(offsets_.end(), list->offsets().begin(), list->offsets().end());
    }
  }
  pages_ = PagesOf(source_.plan, state_);
  Check(pages_.size() == offsets_.size(), "a layer's pages follow from its numbers");
  bytes_ = BytesOf(pages_, *source_.pool);
  return absl::OkStatus();
}

std::string Snapshot::Read(int64_t max, kernels::Backend* backend) {
  while (static_cast<int64_t>(read_.size()) < max && next_page_ < pages_.size()) {
    ReadPage(backend);
  }
  if (static_cast<int64_t>(read_.size()) <= max) {
    return std::exchange(read_, {});
  }
  std::string bytes = read_.substr(0, static_cast<size_t>(max));
  read_.erase(0, static_cast<size_t>(max));
  return bytes;
}

void Snapshot::ReadPage(kernels::Backend* backend) {
  const SnapshotPage& page = pages_[next_page_];
  const int64_t bytes = source_.pool->page_bytes(page.kind);
  const size_t at = read_.size();
  read_.resize(at + static_cast<size_t>(bytes));
  auto* data = reinterpret_cast<uint8_t*>(read_.data()) + at;
  backend->Download(data, source_.pool->data() + offsets_[next_page_], bytes);
  backend->Synchronize();
  // What lies behind the rows are those of other sessions, maybe another tenant's.
  if (page.kind == PageKind::kHeld) {
    const int64_t rows = page.rows * source_.plan.d_model * static_cast<int64_t>(sizeof(float));
    std::memset(data + rows, 0, static_cast<size_t>(bytes - rows));
  } else if (page.kind == PageKind::kLocal) {
    kernels::ClearSlots(source_.plan.local.shape, source_.cache_dtype, page.rows, data);
  } else {
    kernels::ClearSlots(source_.plan.global.shape, source_.cache_dtype, page.rows, data);
  }
  ++next_page_;
}

}  // namespace attnd
