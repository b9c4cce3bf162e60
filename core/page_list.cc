#include "core/page_list.h"

#include "core/page_pool.h"
#include "kernels/check.h"

namespace attnd {

PageList::PageList(const PageList& other)
    : pool_(other.pool_), holder_(other.holder_), offsets_(other.offsets_) {
  if (!offsets_.empty()) {
    pool_->AddReferences(offsets_, holder_);
  }
}

PageList& PageList::operator=(const PageList& other) {
  if (this != &other) {
    PageList copy(other);
    *this = std::move(copy);
  }
  return *this;
}

PageList::PageList(PageList&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      holder_(std::exchange(other.holder_, nullptr)),
      offsets_(std::move(other.offsets_)) {
  other.offsets_.clear();
}

PageList& PageList::operator=(PageList&& other) noexcept {
  if (this != &other) {
    Truncate(0);
    pool_ = std::exchange(other.pool_, nullptr);
    holder_ = std::exchange(other.holder_, nullptr);
    offsets_ = std::move(other.offsets_);
    other.offsets_.clear();
  }
  return *this;
}

PageList::~PageList() { Truncate(0); }

void PageList::Truncate(int64_t n) {
  Check(n >= 0, "a list keeps no fewer than no pages");
  if (n < size()) {
    pool_->Release(offsets_.data() + n, size() - n, holder_);
    offsets_.resize(static_cast<size_t>(n));
  }
}

void PageList::DropFront(int64_t n) {
  Check(n <= size(), "a list lets go of its own pages");
  if (n > 0) {
    pool_->Release(offsets_.data(), n, holder_);
    offsets_.erase(offsets_.begin(), offsets_.begin() + n);
  }
}

void PageList::Append(PageList* from, int64_t n) {
  Check(n <= from->size(), "a step uses no more pages than it took");
  if (n > 0) {
    Check(empty() || holder_ == from->holder_, "a list holds its pages for one account");
    pool_ = from->pool_;
    holder_ = from->holder_;
    offsets_.insert(offsets_.end(), from->offsets_.begin(), from->offsets_.begin() + n);
    from->offsets_.erase(from->offsets_.begin(), from->offsets_.begin() + n);
  }
}

PageList PageList::Slice(int64_t begin, int64_t end) const {
  if (begin >= end) {
    return {};
  }
  Check(begin >= 0 && end <= size(), "a slice lies within its list");
  PageList slice(pool_, holder_,
                 std::vector<int64_t>(offsets_.begin() + begin, offsets_.begin() + end));
  pool_->AddReferences(slice.offsets_, holder_);
  return slice;
}

}  // namespace attnd
