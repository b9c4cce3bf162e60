// What an exported session says of itself.
#include "core/snapshot_state.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "core/int_math.h"

namespace attnd {
namespace {

using kernels::kPageTokens;

int64_t PageCeil(int64_t tokens) { return CeilDiv(tokens, kPageTokens) * kPageTokens; }

// What one layer's numbers must be, and what is wrong with them.
class StateCheck {
 public:
  StateCheck(const LayerState& state, LayerKind kind, int64_t window, const SessionSpec& spec,
             int64_t max_seq_len)
      : s_(state),
        local_(kind == LayerKind::kLocal),
        window_(window),
        prefix_(spec.prefix_length),
        max_seq_len_(max_seq_len),
        cap_(spec.max_tokens > 0 ? std::min(spec.max_tokens, max_seq_len) : max_seq_len) {}

  // Empty when all is well.
  std::string Fault() {
    Ranges();
    if (fault_.empty()) {  // the rest computes with them
      Pages();
      Held();
      Repetition();
    }
    return fault_;
  }

 private:
  void Range(const char* name, int64_t value, int64_t min, int64_t max) {
    if (fault_.empty() && (value < min || value > max)) {
      fault_ = absl::StrCat(name, " is ", value, "; expected ", min, " to ", max);
    }
  }
  void Multiple(const char* name, int64_t value) {
    if (fault_.empty() && value % kPageTokens != 0) {
      fault_ = absl::StrCat(name, " is ", value, "; expected a multiple of ", kPageTokens);
    }
  }

  void Ranges() {
    Range("layer_lengths", s_.length, 0, cap_);
    // Never lowered by a cut, it may lie beyond the length, and in a fork beyond the cap.
    Range("first_kept", s_.first, 0, local_ ? max_seq_len_ : 0);
    Range("last_step_start", s_.last_step_start, -1, s_.length);
    Range("page_start", s_.page_start, 0, local_ ? PageCeil(s_.length) : 0);
    Range("tail_start", s_.tail_start, 0, local_ ? PageCeil(s_.length) : 0);
    Range("tail_end", s_.tail_end, s_.tail_start, local_ ? PageCeil(s_.length) : 0);
    Multiple("page_start", s_.page_start);
    Multiple("tail_start", s_.tail_start);
    Multiple("tail_end", s_.tail_end);
  }

  bool pending() const { return s_.length < prefix_; }
  // The first key that a row at `position` sees; all of a prefix is kept until it is answered.
  int64_t Needed(int64_t position) const {
    return position < prefix_ ? 0 : std::max<int64_t>(0, position - window_ + 1);
  }

  // Pages for the next row, and for every cut that `first` allows.
  void Pages() {
    if (!local_ || s_.length == 0) {
      return;
    }
    int64_t latest = std::min(Needed(s_.length), s_.length);
    if (s_.first == 0) {
      latest = 0;
    } else if (s_.first + window_ < s_.length) {
      latest = std::min(latest, s_.first);
    }
    Range("page_start", s_.page_start, 0, latest);
  }

  void Held() {
    const bool repeats_prefix = s_.last_step_start >= 0 && s_.last_step_start < prefix_;
    const int64_t held = pending() ? s_.length : repeats_prefix ? s_.last_step_start : 0;
    Range("held_rows", s_.held_rows, held, held);
  }

  // The last step may be repeated: a cut to where it began finds the keys of its first row.
  void Repetition() {
    const int64_t at = s_.last_step_start;
    const bool cuts = local_ && at > 0 && at < s_.length;
    if (!cuts) {
      Range("tail_end", s_.tail_end, s_.tail_start, s_.tail_start);
      return;
    }
    const int64_t needed = Needed(at);
    if (s_.tail_end == s_.tail_start) {
      // A window of one token needs no key, and on an edge no page either.
      const bool starts_anew = needed == at && at % kPageTokens == 0;
      Range("page_start", s_.page_start, 0, starts_anew ? s_.page_start : needed);
      return;
    }
    Range("tail_start", s_.tail_start, 0, needed);
    const bool joins = s_.tail_end == s_.page_start;
    Range("tail_end", s_.tail_end, joins ? s_.tail_end : PageCeil(at), PageCeil(at));
  }

  const LayerState& s_;
  const bool local_;
  const int64_t window_, prefix_, max_seq_len_, cap_;
  std::string fault_;
};

void AddPages(PageKind kind, LayerKind layer_kind, int64_t rows, int64_t page_rows,
              std::vector<SnapshotPage>* pages) {
  for (; rows > 0; rows -= page_rows) {
    pages->push_back({kind, layer_kind, std::min(rows, page_rows)});
  }
}

}  // namespace

LayerState StateOf(const LayerCache& cache) {
  LayerState state;
  state.length = cache.length;
  state.first = cache.first;
  state.last_step_start = cache.last_step_start;
  state.page_start = cache.first_page * kPageTokens;
  if (!cache.tail.empty()) {
    state.tail_start = cache.tail_page * kPageTokens;
    state.tail_end = state.tail_start + cache.tail.size() * kPageTokens;
  }
  state.held_rows = cache.held_rows;
  return state;
}

absl::Status CheckState(const LayerPlan& plan, const SnapshotState& state) {
  if (static_cast<int64_t>(state.layers.size()) != plan.num_layers()) {
    return MakeError(Reason::kFormatMismatch,
                     absl::StrCat("the header has ", state.layers.size(), " layers; expected ",
                                  plan.num_layers()));
  }
  for (size_t layer = 0; layer < state.layers.size(); ++layer) {
    StateCheck check(state.layers[layer], plan.layers[layer], plan.local.window, state.spec,
                     plan.max_seq_len);
    if (const std::string fault = check.Fault(); !fault.empty()) {
      return MakeError(Reason::kFormatMismatch, absl::StrCat("layer ", layer, ": ", fault));
    }
  }
  return absl::OkStatus();
}

std::vector<SnapshotPage> PagesOf(const LayerPlan& plan, const SnapshotState& state) {
  std::vector<SnapshotPage> pages;
  for (size_t layer = 0; layer < state.layers.size(); ++layer) {
    const LayerState& s = state.layers[layer];
    const LayerKind kind = plan.layers[layer];
    const PageKind main = kind == LayerKind::kLocal ? PageKind::kLocal : PageKind::kGlobal;
    AddPages(main, kind, s.length - s.page_start, kPageTokens, &pages);
    AddPages(main, kind, s.tail_end - s.tail_start, kPageTokens, &pages);
    AddPages(PageKind::kHeld, kind, s.held_rows, kHeldPageRows, &pages);
  }
  return pages;
}

int64_t BytesOf(const std::vector<SnapshotPage>& pages, const PagePool& pool) {
  int64_t bytes = 0;
  for (const SnapshotPage& page : pages) {
    bytes += pool.page_bytes(page.kind);
  }
  return bytes;
}

}  // namespace attnd
