#include "core/page_pool.h"

#include <algorithm>
#include <string>

#include "core/error.h"
#include "core/int_math.h"
#include "kernels/check.h"

namespace attnd {
namespace {

// How long a client should wait before it tries again when the cache is full: steps last
// milliseconds, sessions seconds; a second does not hammer the server and is soon enough.
constexpr int64_t kCacheFullRetryMs = 1000;

// A slab holds at least one page of every kind; whole 4 KiB pages of the system.
int64_t SlabBytes(const PerKind& page_bytes) {
  const int64_t largest = *std::max_element(page_bytes.begin(), page_bytes.end());
  return CeilDiv(std::max(kMinSlabBytes, largest), 4096) * 4096;
}

}  // namespace

int64_t PagePool::LeastBytes(const PerKind& page_bytes) {
  const auto kinds =
      std::count_if(page_bytes.begin(), page_bytes.end(), [](int64_t bytes) { return bytes > 0; });
  return kinds * SlabBytes(page_bytes);
}

const char* PageKindName(PageKind kind) {
  switch (kind) {
    case PageKind::kGlobal:
      return "global";
    case PageKind::kLocal:
      return "local";
    case PageKind::kHeld:
      return "held";
  }
  return "?";
}

PagePool::PagePool(kernels::DeviceMemory* memory, const PerKind& page_bytes)
    : memory_(memory), page_bytes_(page_bytes) {
  slab_bytes_ = SlabBytes(page_bytes);
  for (int kind = 0; kind < kNumPageKinds; ++kind) {
    slab_pages_[kind] = page_bytes_[kind] > 0 ? slab_bytes_ / page_bytes_[kind] : 0;
  }
  slabs_.resize(static_cast<size_t>(memory->bytes() / slab_bytes_));
  for (int64_t i = static_cast<int64_t>(slabs_.size()) - 1; i >= 0; --i) {
    empty_slabs_.push_back(static_cast<int32_t>(i));
  }
  clean_slabs_ = empty_slabs_.size();
}

PagePool::~PagePool() {
  Check(used_ == PerKind{}, "every page was returned before the pool ended");
}

void PagePool::Release(const int64_t* offsets, int64_t n, Account* holder) {
  std::lock_guard lock(mutex_);
  for (int64_t i = 0; i < n; ++i) {
    Page& page = PageAt(offsets[i]);
    Check(page.references > 0, "a page is released no more often than it was taken");
    --page.references;
    if (page.shared) {
      ReleaseShared(offsets[i], &page, holder);
    } else if (page.references == 0) {
      Free(offsets[i], &page);
    }
  }
}

PagePool::Page& PagePool::PageAt(int64_t offset) {
  return const_cast<Page&>(std::as_const(*this).PageAt(offset));
}

const PagePool::Page& PagePool::PageAt(int64_t offset) const {
  const Slab& slab = slabs_[static_cast<size_t>(offset / slab_bytes_)];
  return slab.pages[static_cast<size_t>(offset % slab_bytes_ / page_bytes_[Index(slab.kind)])];
}

int PagePool::KindAt(int64_t offset) const {
  return Index(slabs_[static_cast<size_t>(offset / slab_bytes_)].kind);
}

void PagePool::Charge(Account* account, int kind) {
  if (++account->used[kind] <= account->promised[kind]) {
    --unused_promises_[kind];
  }
}

void PagePool::Discharge(Account* account, int kind) {
  if (account->used[kind]-- <= account->promised[kind]) {
    ++unused_promises_[kind];
  }
}

void PagePool::Free(int64_t offset, Page* page) {
  const auto slab_index = static_cast<int32_t>(offset / slab_bytes_);
  Slab& slab = slabs_[static_cast<size_t>(slab_index)];
  const int kind = Index(slab.kind);
  --used_[kind];
  ++free_[kind];
  Discharge(std::exchange(page->account, nullptr), kind);
  slab.free.push_back(static_cast<int32_t>(offset % slab_bytes_ / page_bytes_[kind]));
  open_slabs_[kind].insert(slab_index);
  if (static_cast<int64_t>(slab.free.size()) == slab_pages_[kind]) {
    open_slabs_[kind].erase(slab_index);
    free_[kind] -= slab_pages_[kind];
    slab.assigned = false;
    slab.pages.clear();
    slab.free.clear();
    empty_slabs_.push_back(slab_index);
  }
}

void PagePool::AssignSlab(int kind) {
  Check(!empty_slabs_.empty(), "room was checked before pages are taken");
  const int32_t index = empty_slabs_.back();
  empty_slabs_.pop_back();
  clean_slabs_ = std::min(clean_slabs_, empty_slabs_.size());
  Slab& slab = slabs_[static_cast<size_t>(index)];
  slab.kind = static_cast<PageKind>(kind);
  slab.assigned = true;
  slab.pages.assign(static_cast<size_t>(slab_pages_[kind]), Page{});
  slab.free.clear();
  for (auto i = static_cast<int32_t>(slab_pages_[kind]) - 1; i >= 0; --i) {
    slab.free.push_back(i);
  }
  free_[kind] += slab_pages_[kind];
  open_slabs_[kind].insert(index);
}

int64_t PagePool::TakeOne(Account* account, int kind) {
  if (open_slabs_[kind].empty()) {
    AssignSlab(kind);
  }
  // The lowest slab first: high ones empty out and can serve another kind.
  const int32_t index = *open_slabs_[kind].begin();
  Slab& slab = slabs_[static_cast<size_t>(index)];
  const int32_t page = slab.free.back();
  slab.free.pop_back();
  if (slab.free.empty()) {
    open_slabs_[kind].erase(index);
  }
  slab.pages[static_cast<size_t>(page)] = {1, false, account};
  ++used_[kind];
  --free_[kind];
  Charge(account, kind);
  return index * slab_bytes_ + page * page_bytes_[kind];
}

bool PagePool::Fits(const PerKind& counts, const PerKind& unused) const {
  int64_t slabs = 0;
  for (int kind = 0; kind < kNumPageKinds; ++kind) {
    const int64_t missing = counts[kind] + unused[kind] - free_[kind];
    if (missing > 0) {
      if (slab_pages_[kind] == 0) {
        return false;
      }
      slabs += CeilDiv(missing, slab_pages_[kind]);
    }
  }
  return slabs <= static_cast<int64_t>(empty_slabs_.size());
}

int64_t PagePool::Bytes(const PerKind& counts) const {
  int64_t bytes = 0;
  for (int kind = 0; kind < kNumPageKinds; ++kind) {
    bytes += counts[kind] * page_bytes_[kind];
  }
  return bytes;
}

absl::Status PagePool::Full(const char* what, const PerKind& counts) const {
  return MakeRetryableError(Reason::kCacheFull,
                            std::string(what) + " needs " + std::to_string(Bytes(counts)) +
                                " more bytes of cache than are free and not reserved of " +
                                std::to_string(static_cast<int64_t>(slabs_.size()) * slab_bytes_) +
                                " (--kv_cache_bytes)",
                            kCacheFullRetryMs);
}

bool PagePool::Possible(const Account& account, const PerKind& counts) const {
  std::lock_guard lock(mutex_);
  int64_t slabs = 0;
  for (int kind = 0; kind < kNumPageKinds; ++kind) {
    const int64_t own = std::max<int64_t>(0, account.used[kind] - account.promised[kind]);
    const int64_t pages = promised_[kind] + own + counts[kind];
    if (pages > 0 && slab_pages_[kind] == 0) {
      return false;
    }
    slabs += pages > 0 ? CeilDiv(pages, slab_pages_[kind]) : 0;
  }
  return slabs <= static_cast<int64_t>(slabs_.size());
}

absl::Status PagePool::Take(Account* account, const PerKind& counts,
                            std::array<PageList, kNumPageKinds>* lists) {
  if (counts == PerKind{}) {
    *lists = {};
    return absl::OkStatus();
  }
  std::array<std::vector<int64_t>, kNumPageKinds> taken;
  const absl::Status status = WithRelief(*account, counts, [&]() -> absl::Status {
    std::lock_guard lock(mutex_);
    PerKind unused = unused_promises_;
    for (int kind = 0; kind < kNumPageKinds; ++kind) {
      const int64_t own = std::max<int64_t>(0, account->promised[kind] - account->used[kind]);
      unused[kind] -= std::min(own, counts[kind]);
    }
    if (!Fits(counts, unused)) {
      return Full("the step", counts);
    }
    for (int kind = 0; kind < kNumPageKinds; ++kind) {
      for (int64_t i = 0; i < counts[kind]; ++i) {
        taken[kind].push_back(TakeOne(account, kind));
      }
    }
    return absl::OkStatus();
  });
  if (!status.ok()) {
    return status;
  }
  for (int kind = 0; kind < kNumPageKinds; ++kind) {
    (*lists)[kind] = PageList(this, account, std::move(taken[kind]));
  }
  return absl::OkStatus();
}

absl::Status PagePool::Promise(Account* account, const PerKind& total) {
  PerKind more{};
  {
    std::lock_guard lock(mutex_);
    for (int kind = 0; kind < kNumPageKinds; ++kind) {
      const int64_t has = std::max(account->used[kind], account->promised[kind]);
      more[kind] = std::max<int64_t>(0, total[kind] - has);
    }
  }
  return WithRelief(*account, more, [&]() -> absl::Status {
    std::lock_guard lock(mutex_);
    PerKind unused = unused_promises_;
    for (int kind = 0; kind < kNumPageKinds; ++kind) {
      unused[kind] -= std::max<int64_t>(0, account->promised[kind] - account->used[kind]);
      unused[kind] += std::max<int64_t>(0, total[kind] - account->used[kind]);
    }
    if (total != PerKind{} && !Fits(PerKind{}, unused)) {
      return Full("a reservation of max_tokens", total);
    }
    for (int kind = 0; kind < kNumPageKinds; ++kind) {
      promised_[kind] += total[kind] - account->promised[kind];
    }
    account->promised = total;
    unused_promises_ = unused;
    return absl::OkStatus();
  });
}

int64_t PagePool::UnusedPromiseBytes(const Account& account) const {
  std::lock_guard lock(mutex_);
  PerKind unused{};
  for (int kind = 0; kind < kNumPageKinds; ++kind) {
    unused[kind] = std::max<int64_t>(0, account.promised[kind] - account.used[kind]);
  }
  return Bytes(unused);
}

int64_t PagePool::Trim(int64_t most) {
  int64_t bytes = 0;
  for (; most > 0; --most) {
    std::lock_guard lock(mutex_);  // taken anew for each slab
    if (clean_slabs_ == empty_slabs_.size()) {
      break;
    }
    memory_->Discard(empty_slabs_[clean_slabs_++] * slab_bytes_, slab_bytes_);
    bytes += slab_bytes_;
  }
  return bytes;
}

PoolStats PagePool::stats() const {
  std::lock_guard lock(mutex_);
  PoolStats stats;
  stats.capacity_bytes = static_cast<int64_t>(slabs_.size()) * slab_bytes_;
  for (int kind = 0; kind < kNumPageKinds; ++kind) {
    stats.used_bytes[kind] = used_[kind] * page_bytes_[kind];
    stats.reserved_bytes[kind] = unused_promises_[kind] * page_bytes_[kind];
  }
  return stats;
}

void PagePool::Audit() const {
  std::lock_guard lock(mutex_);
  PerKind used{}, free{};
  int64_t empty = 0;
  for (const Slab& slab : slabs_) {
    if (!slab.assigned) {
      ++empty;
      continue;
    }
    const int kind = Index(slab.kind);
    const auto referenced = std::count_if(slab.pages.begin(), slab.pages.end(),
                                          [](const Page& page) { return page.references > 0; });
    Check(referenced + static_cast<int64_t>(slab.free.size()) == slab_pages_[kind],
          "a page of a slab is used or free");
    Check(referenced > 0, "an empty slab serves no kind");
    used[kind] += referenced;
    free[kind] += static_cast<int64_t>(slab.free.size());
  }
  Check(used == used_ && free == free_, "free + used = capacity");
  Check(empty == static_cast<int64_t>(empty_slabs_.size()), "an unassigned slab is empty");
  Check(Fits(PerKind{}, unused_promises_), "every promise can be kept");
  AuditHolders();
}

}  // namespace attnd
