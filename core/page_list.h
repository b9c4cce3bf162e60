// Pages of the pool (page_pool.h) that a layer holds: a value whose copies share them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace attnd {

class PagePool;
struct Account;

// Pages of one kind, in order, held for one account. A copy shares the pages; the last owner
// frees them.
class PageList {
 public:
  PageList() = default;
  // Takes over one reference for `holder` to each page.
  PageList(PagePool* pool, Account* holder, std::vector<int64_t> offsets)
      : pool_(pool), holder_(holder), offsets_(std::move(offsets)) {}
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
  Account* holder_ = nullptr;     // likewise
  std::vector<int64_t> offsets_;  // bytes into the pool
};

}  // namespace attnd
