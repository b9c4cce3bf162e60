// The pages of all caches: one byte budget, cut into slabs that serve one kind of page at a time
// and return when empty, so that neither kind starves while another has room.
//
// Pages are reference counted: copying a PageList shares its pages, Share() does so between
// accounts. An Account is a session's standing with the pool: what it uses, and what was promised
// to it. A promise is kept because a page that is not promised is only given away while every
// promise could still be met. A page that several accounts hold is counted once, as used by one of
// them: by one without a promise where there is one, so that a promise never relies on a page
// that its holder could let go of while it stays in use. Accounting is exact: free + used =
// capacity after every operation (Audit()). Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/page_list.h"
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

// Pages that a session uses and pages promised to it. Belongs to one pool; guarded by it; outlives
// the lists that hold pages for it.
struct Account {
  PerKind used{};      // pages counted as this account's
  PerKind promised{};  // pages that Take() must always be able to give, used ones included

  bool reserved() const { return promised != PerKind{}; }
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

  // Called when there is no room for so many bytes, with no lock of the pool's held; true when
  // pages came free, and it is tried again. Set before the pool is used.
  using Reliever = std::function<bool(int64_t bytes)>;
  void SetReliever(Reliever reliever) { reliever_ = std::move(reliever); }

  // Takes `counts` pages of each kind for `account`, all or none; CACHE_FULL when there is no
  // room beside what is promised to others.
  absl::Status Take(Account* account, const PerKind& counts,
                    std::array<PageList, kNumPageKinds>* lists);

  // Promises `total` pages to the account (used ones included), all or nothing; CACHE_FULL
  // when that cannot be kept. Zero takes a promise back.
  absl::Status Promise(Account* account, const PerKind& total);

  // Lists of the same pages for `holder`, all or none; CACHE_FULL when a promise made to one who
  // holds them now could not be kept then.
  absl::StatusOr<std::vector<PageList>> Share(const std::vector<const PageList*>& lists,
                                              Account* holder);

  // Whether an account beside `holder`, which holds the page, holds it too.
  bool HeldByOthers(int64_t offset, const Account* holder) const;

  // Bytes promised to the account and not yet used.
  int64_t UnusedPromiseBytes(const Account& account) const;

  // Gives the memory of up to `most` empty slabs back to the system; returns the bytes, 0 when all
  // of it is given back. Apart from freeing because a busy pool takes the same slabs again at
  // once, and in parts because one takes the system a tenth of a millisecond or more.
  int64_t Trim(int64_t most);

  PoolStats stats() const;

  // Recounts everything from the slabs; a Check fails where it disagrees with the counters or
  // free + used != capacity.
  void Audit() const;

 private:
  friend class PageList;

  struct Page {
    int32_t references = 0;  // by all holders
    bool shared = false;     // by accounts listed in holders_
    Account* account = nullptr;
  };
  struct Holder {
    Account* account = nullptr;
    int32_t references = 0;
  };
  struct Slab {
    PageKind kind = PageKind::kGlobal;
    bool assigned = false;
    std::vector<Page> pages;    // of an assigned slab
    std::vector<int32_t> free;  // indices of free pages
  };

  void AddReferences(const std::vector<int64_t>& offsets, Account* holder);
  void Release(const int64_t* offsets, int64_t n, Account* holder);

  Page& PageAt(int64_t offset);
  const Page& PageAt(int64_t offset) const;
  int KindAt(int64_t offset) const;
  void AddReference(int64_t offset, Account* holder);
  void ReleaseShared(int64_t offset, Page* page, Account* holder);
  // Counts a page as the account's, or no longer.
  void Charge(Account* account, int kind);
  void Discharge(Account* account, int kind);
  void Free(int64_t offset, Page* page);
  int64_t TakeOne(Account* account, int kind);
  void AssignSlab(int kind);
  // Runs `attempt` until it does not say CACHE_FULL or no relief is to be had for `counts`.
  template <typename Attempt>
  absl::Status WithRelief(const Account& account, const PerKind& counts, Attempt attempt);
  // True when `counts` pages could be given to the account if all others kept only what is
  // promised to them.
  bool Possible(const Account& account, const PerKind& counts) const;
  int64_t Bytes(const PerKind& counts) const;
  absl::Status Full(const char* what, const PerKind& counts) const;
  void AuditHolders() const;
  // True when, after taking `counts` more pages for nobody in particular, every promise could
  // still be kept with `unused` pages promised and not used.
  bool Fits(const PerKind& counts, const PerKind& unused) const;

  kernels::DeviceMemory* memory_;
  PerKind page_bytes_;
  int64_t slab_bytes_ = 0;
  PerKind slab_pages_{};  // pages of each kind in a slab
  Reliever reliever_;

  mutable std::mutex mutex_;
  std::vector<Slab> slabs_;
  std::vector<int32_t> empty_slabs_;  // unassigned, last in first out
  // Of these the first so many hold no memory of the system's; all behind them may.
  size_t clean_slabs_ = 0;
  std::array<std::set<int32_t>, kNumPageKinds> open_slabs_;  // assigned, with a free page
  // Of the pages that several accounts hold, by offset.
  std::unordered_map<int64_t, std::vector<Holder>> holders_;
  PerKind used_{}, free_{}, unused_promises_{};  // pages
  PerKind promised_{};                           // pages, used ones included
};

template <typename Attempt>
absl::Status PagePool::WithRelief(const Account& account, const PerKind& counts, Attempt attempt) {
  while (true) {
    absl::Status status = attempt();
    if (status.ok() || !reliever_ || !Possible(account, counts) || !reliever_(Bytes(counts))) {
      return status;
    }
  }
}

}  // namespace attnd
