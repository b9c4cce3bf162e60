// The pages of all caches: one byte budget, cut into slabs that serve one kind of page at a time
// and return when empty, so that neither kind starves while another has room.
//
// Pages are reference counted: copying a PageList shares its pages. An Account is a session's
// standing with the pool: what it uses, and what was promised to it. A promise is kept because
// a page that is not promised is only given away while every promise could still be met.
// Accounting is exact: free + used = capacity after every operation (Audit()). Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend.h"

namespace attnd {

// Pages of global layers, of local layers, and of prefix rows held back until they are answered.
enum class PageKind : uint8_t { kGlobal, kLocal, kHeld };
inline constexpr int kNumPageKinds = 3;
const char* PageKindName(PageKind kind);

// A number per kind of page.
using PerKind = std::array<int64_t, kNumPageKinds>;
constexpr int Index(PageKind kind) { return static_cast<int>(kind); }

inline constexpr int64_t kMinSlabBytes = int64_t{1} << 20;

class PagePool;

// Pages that a session uses and pages promised to it. Belongs to one pool; guarded by it.
struct Account {
  PerKind used{};      // pages taken through this account and not yet freed
  PerKind promised{};  // pages that Take() must always be able to give, used ones included
};

// Pages of one kind, in order. A copy shares the pages; the last owner frees them.
class PageList {
 public:
  PageList() = default;
  PageList(PagePool* pool, std::vector<int64_t> offsets)
      : pool_(pool), offsets_(std::move(offsets)) {}
  PageList(const PageList& other);
  PageList& operator=(const PageList& other);
  PageList(PageList&& other) noexcept;
  PageList& operator=(PageList&& other) noexcept;
  ~PageList();

  int64_t size() const { return static_cast<int64_t>(offsets_.size()); }
  bool empty() const { return offsets_.empty(); }
  int64_t operator[](int64_t i) const { return offsets_[static_cast<size_t>(i)]; }
  const std::vector<int64_t>& offsets() const { return offsets_; }

  // Lets go of all but the first n pages / of the first n.
  void Truncate(int64_t n);
  void DropFront(int64_t n);
  // Moves the first n pages of `from` to the end of this list.
  void Append(PageList* from, int64_t n);
  // Shares pages [begin, end).
  PageList Slice(int64_t begin, int64_t end) const;

 private:
  PagePool* pool_ = nullptr;      // null only while empty
  std::vector<int64_t> offsets_;  // bytes into the pool
};

struct PoolStats {
  int64_t capacity_bytes = 0;
  PerKind used_bytes{};
  PerKind reserved_bytes{};  // promised and not yet used
};

class PagePool {
 public:
  // Takes `memory` as its slabs; what is left over at the end is not used. `page_bytes` of a
  // kind that the model does not have is 0.
  PagePool(kernels::DeviceMemory* memory, const PerKind& page_bytes);
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;
  ~PagePool();

  // The least memory in which every kind of page finds a slab at the same time.
  static int64_t LeastBytes(const PerKind& page_bytes);

  int64_t page_bytes(PageKind kind) const { return page_bytes_[Index(kind)]; }
  uint8_t* data() const { return memory_->data(); }

  // Takes `counts` pages of each kind for `account`, all or none; CACHE_FULL when there is no
  // room beside what is promised to others.
  absl::Status Take(Account* account, const PerKind& counts,
                    std::array<PageList, kNumPageKinds>* lists);

  // Promises `total` pages to the account (used ones included), all or nothing; CACHE_FULL
  // when that cannot be kept. Zero takes a promise back.
  absl::Status Promise(Account* account, const PerKind& total);

  // Bytes promised to the account and not yet used.
  int64_t UnusedPromiseBytes(const Account& account) const;

  // Gives the memory of empty slabs back to the system; returns the bytes. Cheap when there
  // are none. Apart from freeing because a busy pool takes the same slabs again at once.
  int64_t Trim();

  PoolStats stats() const;

  // Recounts everything from the slabs; a Check fails where it disagrees with the counters or
  // free + used != capacity.
  void Audit() const;

 private:
  friend class PageList;

  struct Page {
    int32_t references = 0;
    Account* account = nullptr;
  };
  struct Slab {
    PageKind kind = PageKind::kGlobal;
    bool assigned = false;
    bool dirty = false;         // written since the system last took its memory back
    std::vector<Page> pages;    // of an assigned slab
    std::vector<int32_t> free;  // indices of free pages
  };

  void AddReferences(const std::vector<int64_t>& offsets);
  void Release(const int64_t* offsets, int64_t n);

  Page& PageAt(int64_t offset);
  void Free(int64_t offset, Page* page);
  int64_t TakeOne(Account* account, int kind);
  void AssignSlab(int kind);
  // True when, after taking `counts` more pages for nobody in particular, every promise could
  // still be kept with `unused` pages promised and not used.
  bool Fits(const PerKind& counts, const PerKind& unused) const;

  kernels::DeviceMemory* memory_;
  PerKind page_bytes_;
  int64_t slab_bytes_ = 0;
  PerKind slab_pages_{};  // pages of each kind in a slab

  mutable std::mutex mutex_;
  std::vector<Slab> slabs_;
  std::vector<int32_t> empty_slabs_;                         // unassigned, last in first out
  std::array<std::set<int32_t>, kNumPageKinds> open_slabs_;  // assigned, with a free page
  PerKind used_{}, free_{}, unused_promises_{};              // pages
  int64_t dirty_empty_slabs_ = 0;
};

}  // namespace attnd
