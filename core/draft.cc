#include "core/draft.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/int_math.h"
#include "kernels/check.h"

namespace attnd {
namespace {

using kernels::kPageTokens;

PageKind MainKind(const LayerRules& rules) {
  return rules.kind == LayerKind::kLocal ? PageKind::kLocal : PageKind::kGlobal;
}

absl::Status Mismatch(const LayerCache& cache, const SequenceStep& part, const char* why) {
  return MakeError(Reason::kPositionMismatch, "position is " + std::to_string(part.position) +
                                                  "; expected " + std::to_string(cache.length) +
                                                  ", the layer's length" + why);
}

// Whether the last page, in whose slot the step would write its first row, must be left alone: the
// original keeps rows there, or a fork or an export holds the page too.
bool MustCopy(const PageList& pages, int64_t slot, bool cut, const Account* account,
              const PagePool& pool) {
  return slot != 0 && (cut || pool.HeldByOthers(pages[pages.size() - 1], account));
}

// Replaces the last page by a copy.
void CopyLastPage(PageList* pages, PageList* spare, int64_t page_bytes, uint8_t* pool,
                  kernels::Backend* backend) {
  const int64_t from = (*pages)[pages->size() - 1];
  backend->Copy(pool + (*spare)[0], pool + from, page_bytes);
  pages->Truncate(pages->size() - 1);
  pages->Append(spare, 1);
}

}  // namespace

absl::Status CheckPosition(const LayerCache& cache, const LayerRules& rules, StepKind kind,
                           const SequenceStep& part, const PositionLimits& limits) {
  const int64_t end = part.position + part.rows;
  if (end > limits.max_seq_len) {
    return MakeError(Reason::kPastMaxSeqLen, "rows up to position " + std::to_string(end - 1) +
                                                 " were sent; the model's max_seq_len is " +
                                                 std::to_string(limits.max_seq_len));
  }
  if (limits.max_tokens > 0 && end > limits.max_tokens) {
    return MakeError(Reason::kPastMaxTokens, "rows up to position " + std::to_string(end - 1) +
                                                 " were sent; the session's max_tokens is " +
                                                 std::to_string(limits.max_tokens));
  }
  if (part.rewind && part.expected_length > 0 && cache.length != part.expected_length &&
      cache.length != part.position) {
    return MakeError(Reason::kPositionMismatch,
                     "expected_length is " + std::to_string(part.expected_length) +
                         "; the layer's length is " + std::to_string(cache.length));
  }
  if (part.position > cache.length) {
    return Mismatch(cache, part, "");
  }
  if (part.position < cache.length) {
    if (!part.rewind) {
      return Mismatch(cache, part, " (or set rewind)");
    }
    if (absl::Status status = CheckCut(cache, rules, part.position); !status.ok()) {
      return status;
    }
  }
  if (kind == StepKind::kDecode && part.position < rules.prefix) {
    return MakeError(Reason::kPrefixIncomplete, "position is " + std::to_string(part.position) +
                                                    "; a Decode starts at the prefix_length, " +
                                                    std::to_string(rules.prefix) +
                                                    ", or later: send the prefix by Prefill");
  }
  return absl::OkStatus();
}

absl::StatusOr<Draft> BeginDraft(LayerCache cache, const LayerRules& rules, const StepShape& step,
                                 const StepPlan& plan, Account* account, PagePool* pool,
                                 kernels::Backend* backend) {
  const bool cut = step.position < cache.length;
  if (cut) {
    Cut(&cache, rules, step.position);
  }
  Draft draft{std::move(cache), rules, step, {}, {}, {}};
  const bool copy_main =
      MustCopy(draft.cache.main, step.position % kPageTokens, cut, account, *pool);
  const bool copy_held =
      step.end() < rules.prefix &&
      MustCopy(draft.cache.held, step.position % kHeldPageRows, cut, account, *pool);
  PerKind counts{};
  counts[Index(MainKind(rules))] = plan.main_pages + (copy_main ? 1 : 0);
  counts[Index(PageKind::kHeld)] = plan.held_pages + (copy_held ? 1 : 0);
  std::array<PageList, kNumPageKinds> taken;
  if (absl::Status status = pool->Take(account, counts, &taken); !status.ok()) {
    return status;
  }
  draft.spare = std::move(taken[Index(MainKind(rules))]);
  draft.spare_held = std::move(taken[Index(PageKind::kHeld)]);
  if (copy_main) {
    CopyLastPage(&draft.cache.main, &draft.spare, pool->page_bytes(MainKind(rules)), pool->data(),
                 backend);
  }
  if (copy_held) {
    CopyLastPage(&draft.cache.held, &draft.spare_held, pool->page_bytes(PageKind::kHeld),
                 pool->data(), backend);
  }
  // Before the step's chunks let go of early pages.
  draft.cache.tail.Truncate(0);
  KeepTail(rules, step.position, KeptFrom(rules, step.end()), &draft.cache);
  draft.cache.last_step_start = step.position;
  return draft;
}

void GrowDraft(const Chunk& chunk, Draft* draft) {
  LayerCache& cache = draft->cache;
  // Pages from before the step may be shared with the original; the step's own go round.
  const int64_t own_page = CeilDiv(draft->step.position, kPageTokens);
  DropBelow(&cache, std::min(chunk.keep_from, own_page * kPageTokens));
  const int64_t unneeded =
      std::min(chunk.keep_from / kPageTokens - cache.first_page, cache.main.size());
  if (unneeded > 0) {
    draft->spare.Append(&cache.main, unneeded);
    cache.first_page += unneeded;
  }
  const int64_t pages = CeilDiv(chunk.append_end, kPageTokens) - cache.first_page;
  if (pages > cache.main.size()) {
    draft->cache.main.Append(&draft->spare, pages - cache.main.size());
  }
  cache.length = std::max(cache.length, chunk.append_end);
  if (draft->step.end() < draft->rules.prefix) {
    const int64_t held = CeilDiv(chunk.append_end, kHeldPageRows);
    cache.held.Append(&draft->spare_held, std::max<int64_t>(0, held - cache.held.size()));
    cache.held_rows = chunk.append_end;
  }
}

void FinishDraft(Draft* draft) {
  LayerCache& cache = draft->cache;
  Check(cache.length == draft->step.end(), "a finished step has appended all its rows");
  draft->spare.Truncate(0);
  draft->spare_held.Truncate(0);
  const int64_t kept_from = KeptFrom(draft->rules, draft->step.end());
  DropBelow(&cache, kept_from);
  cache.first = std::max(cache.first, kept_from);
  if (draft->step.position >= draft->rules.prefix) {
    cache.held_rows = 0;
    cache.held.Truncate(0);
  }
}

}  // namespace attnd
