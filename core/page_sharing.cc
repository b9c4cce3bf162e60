// The part of the pool that deals with pages of several holders: who has them, and whose they count
// as.
#include <algorithm>

#include "core/page_pool.h"
#include "kernels/check.h"

namespace attnd {

void PagePool::AddReferences(const std::vector<int64_t>& offsets, Account* holder) {
  std::lock_guard lock(mutex_);
  for (int64_t offset : offsets) {
    AddReference(offset, holder);
  }
}

void PagePool::AddReference(int64_t offset, Account* holder) {
  Page& page = PageAt(offset);
  ++page.references;
  if (!page.shared) {
    if (page.account == holder) {
      return;
    }
    page.shared = true;
    holders_[offset] = {{page.account, page.references - 1}};
  }
  std::vector<Holder>& holders = holders_[offset];
  const auto it = std::find_if(holders.begin(), holders.end(),
                               [&](const Holder& h) { return h.account == holder; });
  if (it != holders.end()) {
    ++it->references;
    return;
  }
  holders.push_back({holder, 1});
  if (page.account->reserved() && !holder->reserved()) {
    Discharge(page.account, KindAt(offset));
    Charge(holder, KindAt(offset));
    page.account = holder;
  }
}

void PagePool::ReleaseShared(int64_t offset, Page* page, Account* holder) {
  const auto entry = holders_.find(offset);
  std::vector<Holder>& holders = entry->second;
  const auto it = std::find_if(holders.begin(), holders.end(),
                               [&](const Holder& h) { return h.account == holder; });
  Check(it != holders.end(), "a page is released by one who holds it");
  if (--it->references > 0) {
    return;
  }
  holders.erase(it);
  if (page->account == holder) {
    const auto heir = std::find_if(holders.begin(), holders.end(),
                                   [](const Holder& h) { return !h.account->reserved(); });
    page->account = (heir == holders.end() ? holders.begin() : heir)->account;
    Discharge(holder, KindAt(offset));
    Charge(page->account, KindAt(offset));
  }
  if (holders.size() == 1) {
    page->shared = false;
    holders_.erase(entry);
  }
}

absl::StatusOr<std::vector<PageList>> PagePool::Share(const std::vector<const PageList*>& lists,
                                                      Account* holder) {
  // Pages that a promise could count on now, and cannot when somebody without one holds them too.
  PerKind moved{};
  const absl::Status status = WithRelief(*holder, moved, [&]() -> absl::Status {
    std::lock_guard lock(mutex_);
    moved = {};
    for (const PageList* list : lists) {
      for (int64_t offset : list->offsets()) {
        moved[KindAt(offset)] += !holder->reserved() && PageAt(offset).account->reserved() ? 1 : 0;
      }
    }
    PerKind unused = unused_promises_;
    for (int kind = 0; kind < kNumPageKinds; ++kind) {
      unused[kind] += moved[kind];
    }
    if (moved != PerKind{} && !Fits(PerKind{}, unused)) {
      return Full("a copy of a session with max_tokens", moved);
    }
    for (const PageList* list : lists) {
      for (int64_t offset : list->offsets()) {
        AddReference(offset, holder);
      }
    }
    return absl::OkStatus();
  });
  if (!status.ok()) {
    return status;
  }
  std::vector<PageList> shared;
  shared.reserve(lists.size());
  for (const PageList* list : lists) {
    shared.emplace_back(this, holder, list->offsets());
  }
  return shared;
}

bool PagePool::HeldByOthers(int64_t offset, const Account* holder) const {
  std::lock_guard lock(mutex_);
  const Page& page = PageAt(offset);
  Check(page.shared || page.account == holder, "a page is asked for by one who holds it");
  return page.shared;
}

void PagePool::AuditHolders() const {
  for (const auto& [offset, holders] : holders_) {
    const Page& page = PageAt(offset);
    int32_t references = 0;
    bool found = false, unreserved = false;
    for (const Holder& holder : holders) {
      Check(holder.references > 0, "a holder has a reference");
      references += holder.references;
      found = found || holder.account == page.account;
      unreserved = unreserved || !holder.account->reserved();
    }
    Check(page.shared && holders.size() > 1, "a shared page has several holders");
    Check(references == page.references && found, "a shared page is counted for one holder");
    Check(!unreserved || !page.account->reserved(), "no promise relies on another's page");
  }
}

}  // namespace attnd
