#include "core/layer_cache.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/int_math.h"
#include "kernels/check.h"

namespace attnd {
namespace {

using kernels::kPageTokens;

// After cutting away everything behind `position`, the main pages start where the tail does.
void JoinTail(LayerCache* cache, int64_t position) {
  const int64_t end_page = CeilDiv(position, kPageTokens);
  PageList joined = std::move(cache->tail);
  joined.Truncate(std::min(joined.size(), std::max<int64_t>(0, end_page - cache->tail_page)));
  if (cache->tail_page + joined.size() == cache->first_page && end_page > cache->first_page) {
    cache->main.Truncate(end_page - cache->first_page);
    joined.Append(&cache->main, cache->main.size());
  }
  cache->main = std::move(joined);
  cache->first_page = cache->tail_page;
}

// The first token that a row at `position` sees, or that is kept for it: all of a prefix.
int64_t FirstSeen(const LayerRules& rules, int64_t position) {
  return position < rules.prefix ? 0 : std::max<int64_t>(0, position - rules.window + 1);
}

}  // namespace

int64_t LayerCache::TokensHeld() const {
  return length - (first <= length ? first : first_page * kPageTokens);
}

PerKind LayerCache::Pages(LayerKind kind) const {
  PerKind pages{};
  pages[Index(kind == LayerKind::kLocal ? PageKind::kLocal : PageKind::kGlobal)] =
      main.size() + tail.size();
  pages[Index(PageKind::kHeld)] = held.size();
  return pages;
}

int64_t RewindFloor(const LayerCache& cache, const LayerRules& rules) {
  int64_t floor = cache.first == 0 ? 0 : std::min(cache.first + rules.window, cache.length);
  if (rules.prefix > 0 && cache.PrefixAnswered(rules.prefix)) {
    floor = std::max(floor, rules.prefix);
  }
  return floor;
}

absl::Status CheckCut(const LayerCache& cache, const LayerRules& rules, int64_t position) {
  if (position == 0 || position == cache.length || position == cache.last_step_start) {
    return absl::OkStatus();
  }
  if (position < rules.prefix && cache.PrefixAnswered(rules.prefix)) {
    return MakeError(Reason::kPrefixAnswered, "position " + std::to_string(position) +
                                                  " lies within the prefix of " +
                                                  std::to_string(rules.prefix) +
                                                  " rows, which is answered: cut to 0, or to " +
                                                  std::to_string(rules.prefix) + " and above");
  }
  if (rules.kind == LayerKind::kLocal && cache.first > 0 && position < cache.first + rules.window) {
    return MakeError(Reason::kRewindTooFar, "position " + std::to_string(position) +
                                                " cannot be cut to: keys before token " +
                                                std::to_string(cache.first) +
                                                " were dropped, so that the lowest position is " +
                                                std::to_string(cache.first + rules.window));
  }
  return absl::OkStatus();
}

void Cut(LayerCache* cache, const LayerRules& rules, int64_t position) {
  Check(position <= cache->length, "a cut goes back");
  if (position == 0) {
    *cache = LayerCache{};
    return;
  }
  const bool reopens_prefix = position < rules.prefix && cache->PrefixAnswered(rules.prefix);
  if (!cache->tail.empty() && position == cache->last_step_start) {
    JoinTail(cache, position);
  } else if (const int64_t end_page = CeilDiv(position, kPageTokens);
             end_page < cache->first_page) {
    // The last step's start, before which no key is needed: W = 1, on the edge of a page.
    cache->main.Truncate(0);
    cache->first_page = end_page;
  } else {
    cache->main.Truncate(end_page - cache->first_page);
  }
  cache->length = position;
  if (cache->shadow != nullptr) {
    cache->shadow->Cut(position);
  }
  if (position < cache->last_step_start) {
    cache->last_step_start = -1;
    cache->tail.Truncate(0);
  }
  if (position < rules.prefix) {
    Check(!reopens_prefix || cache->held_rows == position, "a repeatable prefix keeps its rows");
    cache->held_rows = std::min(cache->held_rows, position);
    cache->held.Truncate(CeilDiv(cache->held_rows, kHeldPageRows));
  }
}

absl::StatusOr<std::vector<LayerCache>> ShareWith(const std::vector<LayerCache>& caches,
                                                  Account* holder, PagePool* pool) {
  std::vector<const PageList*> lists;
  for (const LayerCache& cache : caches) {
    lists.insert(lists.end(), {&cache.main, &cache.tail, &cache.held});
  }
  absl::StatusOr<std::vector<PageList>> pages = pool->Share(lists, holder);
  if (!pages.ok()) {
    return pages.status();
  }
  std::vector<LayerCache> shared;
  for (size_t i = 0; i < caches.size(); ++i) {
    LayerCache& cache = shared.emplace_back(caches[i]);
    cache.main = std::move((*pages)[3 * i]);
    cache.tail = std::move((*pages)[3 * i + 1]);
    cache.held = std::move((*pages)[3 * i + 2]);
    cache.shadow.reset();
  }
  return shared;
}

int64_t KeptFrom(const LayerRules& rules, int64_t length) {
  if (rules.kind == LayerKind::kGlobal || length < rules.prefix) {
    return 0;
  }
  return std::max<int64_t>(0, length - rules.window - rules.max_rewind);
}

void KeepTail(const LayerRules& rules, int64_t at, int64_t kept_from, LayerCache* cache) {
  const int64_t begin = FirstSeen(rules, at) / kPageTokens;
  const int64_t end = std::min(CeilDiv(at, kPageTokens), kept_from / kPageTokens);
  if (rules.kind == LayerKind::kLocal && begin < end) {
    Check(cache->first_page <= begin, "a layer holds the keys that its next row sees");
    cache->tail = cache->main.Slice(begin - cache->first_page, end - cache->first_page);
    cache->tail_page = begin;
  }
}

void Trim(const LayerRules& rules, LayerCache* cache) {
  const int64_t kept_from = KeptFrom(rules, cache->length);
  const int64_t at = cache->last_step_start;
  if (kept_from / kPageTokens > cache->first_page) {
    if (cache->tail_page + cache->tail.size() == cache->first_page) {
      JoinTail(cache, cache->length);
    }
    if (cache->tail.empty() && at > 0 && at < cache->length) {
      KeepTail(rules, at, kept_from, cache);
    }
    DropBelow(cache, kept_from);
  }
  if (!cache->tail.empty()) {
    const int64_t unseen =
        std::min(FirstSeen(rules, at) / kPageTokens - cache->tail_page, cache->tail.size());
    cache->tail.DropFront(unseen);
    cache->tail_page += unseen;
  }
  cache->first = std::max(cache->first, kept_from);
}

void DropBelow(LayerCache* cache, int64_t token) {
  const int64_t pages =
      std::min(std::max<int64_t>(0, token / kPageTokens - cache->first_page), cache->main.size());
  cache->main.DropFront(pages);
  cache->first_page += pages;
}

}  // namespace attnd
