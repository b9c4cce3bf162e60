#include "core/mla_shadow.h"

#include <algorithm>

#include "core/int_math.h"
#include "kernels/check.h"
#include "kernels/params.h"

namespace attnd {

using kernels::kPageTokens;

LayerShadow::~LayerShadow() { store_->Drop(this); }

void LayerShadow::Cut(int64_t position) {
  rows_ = std::min(rows_, position);
  written_ = rows_;
  std::lock_guard lock(store_->mutex_);
  store_->TruncateLocked(this, CeilDiv(rows_, kPageTokens));
}

ShadowStore::ShadowStore(kernels::DeviceMemory* memory, int64_t page_bytes)
    : memory_(memory), page_bytes_(page_bytes), num_pages_(memory->bytes() / page_bytes) {
  for (int64_t page = num_pages_; page-- > 0;) {
    free_.push_back(page * page_bytes);
  }
}

ShadowStore::~ShadowStore() {
  Check(static_cast<int64_t>(free_.size()) == num_pages_ && use_order_.empty(),
        "every shadow ended before the store");
}

int64_t ShadowStore::used_bytes() const {
  std::lock_guard lock(mutex_);
  return (num_pages_ - static_cast<int64_t>(free_.size())) * page_bytes_;
}

void ShadowStore::BeginBatch() {
  ++batch_;
  fill_left_ = kShadowFillRows;
}

ShadowFill ShadowStore::Plan(LayerShadow* shadow, const ShadowChunk& chunk) {
  if (chunk.begin == chunk.position) {
    shadow->written_ = shadow->rows_;
    if (shadow->decodes_++ == 0) {
      shadow->hot_since_ = batch_;
    }
  }
  if (shadow->pages_.empty() && shadow->decodes_ < kHotDecodes) {
    return {};
  }
  if (!TakePages(shadow, CeilDiv(chunk.end, kPageTokens))) {
    Drop(shadow);
    shadow->decodes_ = 0;
    return {};
  }
  ShadowFill fill{shadow->written_, chunk.end};
  const int64_t history = std::max<int64_t>(0, chunk.begin - fill.begin);
  if (history > fill_left_) {
    fill.end = fill.begin + fill_left_;
  }
  fill_left_ -= std::min(history, fill_left_);
  shadow->written_ = fill.end;
  // Rows from before the step are the layer's whether it succeeds or not.
  shadow->rows_ = std::max(shadow->rows_, std::min(fill.end, chunk.position));
  return fill;
}

bool ShadowStore::TakePages(LayerShadow* shadow, int64_t count) {
  std::lock_guard lock(mutex_);
  if (!shadow->pages_.empty()) {
    use_order_.splice(use_order_.end(), use_order_, shadow->in_use_order_);
  }
  shadow->last_use_ = batch_;
  int64_t missing =
      count - static_cast<int64_t>(shadow->pages_.size()) - static_cast<int64_t>(free_.size());
  auto kept = use_order_.begin();
  for (; missing > 0; ++kept) {
    if (kept == use_order_.end() || (*kept)->last_use_ >= shadow->hot_since_) {
      return false;
    }
    missing -= static_cast<int64_t>((*kept)->pages_.size());
  }
  while (use_order_.begin() != kept) {
    DropLocked(use_order_.front());
  }
  if (shadow->pages_.empty()) {
    shadow->in_use_order_ = use_order_.insert(use_order_.end(), shadow);
  }
  while (static_cast<int64_t>(shadow->pages_.size()) < count) {
    shadow->pages_.push_back(free_.back());
    free_.pop_back();
  }
  return true;
}

void ShadowStore::Drop(LayerShadow* shadow) {
  std::lock_guard lock(mutex_);
  DropLocked(shadow);
}

void ShadowStore::DropLocked(LayerShadow* shadow) {
  TruncateLocked(shadow, 0);
  shadow->rows_ = 0;
  shadow->written_ = 0;
}

void ShadowStore::TruncateLocked(LayerShadow* shadow, int64_t count) {
  if (static_cast<int64_t>(shadow->pages_.size()) <= count) {
    return;
  }
  free_.insert(free_.end(), shadow->pages_.begin() + count, shadow->pages_.end());
  shadow->pages_.resize(static_cast<size_t>(count));
  if (count == 0) {
    use_order_.erase(shadow->in_use_order_);
  }
}

}  // namespace attnd
