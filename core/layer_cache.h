// What one layer holds for one session: a value. A step works on a copy and swaps it in when it
// is done, so that whatever goes wrong in between leaves the layer as it was.
//
//   tokens   0 ........ tail ........ | ......... dropped ......... | ....... main ....... length
//                       ^ the keys that the last step's first rows saw, kept to repeat it
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/layer_plan.h"
#include "core/mla_shadow.h"
#include "core/page_pool.h"

namespace attnd {

// Hidden rows in one page of held-back prefix rows: small, for a row is as wide as the model.
inline constexpr int64_t kHeldPageRows = 16;

// What the rules below need to know of a layer and its session.
struct LayerRules {
  LayerKind kind = LayerKind::kLocal;
  int64_t window = 0;      // W of a local layer
  int64_t max_rewind = 0;  // tokens beyond the window that a local layer keeps
  int64_t prefix = 0;      // P of the session
};

struct LayerCache {
  int64_t length = 0;           // rows appended and not cut: the position of the next row
  int64_t first = 0;            // the oldest token that a cut may rely on; 0 on global layers
  int64_t last_step_start = 0;  // where the last step began; -1: no step can be repeated

  int64_t first_page = 0;  // token index / kPageTokens of main[0]
  PageList main;           // pages of tokens up to `length`
  int64_t tail_page = 0;   // likewise of tail[0]
  PageList tail;           // earlier pages, kept until the next step has ended

  // Hidden rows [0, held_rows) of a prefix: not yet answered, or answered by the last step.
  int64_t held_rows = 0;
  PageList held;

  // Of a global layer that has decoded, where the server keeps shadows; shared by all copies.
  std::shared_ptr<LayerShadow> shadow;

  bool PrefixAnswered(int64_t prefix) const { return length >= prefix; }
  // Tokens whose keys are held (the tail, which only a repetition uses, not counted).
  int64_t TokensHeld() const;
  // Pages by kind, each once.
  PerKind Pages(LayerKind kind) const;
};

// The lowest position above 0 from which on every cut is accepted; 0 if any is.
int64_t RewindFloor(const LayerCache& cache, const LayerRules& rules);

// OK when the layer may be cut to `position` (<= length); else REWIND_TOO_FAR or
// PREFIX_ANSWERED, with the position from which on cuts are accepted.
absl::Status CheckCut(const LayerCache& cache, const LayerRules& rules, int64_t position);

// Cuts to `position`, which CheckCut() accepted. `first` is never lowered, except by a cut to 0,
// which starts the layer anew. The last page may still hold rows from `position` on.
void Cut(LayerCache* cache, const LayerRules& rules, int64_t position);

// The same layers with their pages shared with `holder`, all or none; shadows stay behind.
// CACHE_FULL as PagePool::Share().
absl::StatusOr<std::vector<LayerCache>> ShareWith(const std::vector<LayerCache>& caches,
                                                  Account* holder, PagePool* pool);

// The first token that a layer of `length` rows leaves behind its window and max_rewind; 0 on
// global layers, and until a prefix is answered.
int64_t KeptFrom(const LayerRules& rules, int64_t length);

// Copies to the tail what of main lies below `kept_from` and is seen by rows from `at` on, so that
// a step that began there can be repeated. Steps of up to max_rewind rows need none.
void KeepTail(const LayerRules& rules, int64_t at, int64_t kept_from, LayerCache* cache);

// Lets go of what these rules do not keep, where the layer was filled under a larger max_rewind.
void Trim(const LayerRules& rules, LayerCache* cache);

// Lets go of the main pages whose tokens all lie below `token`.
void DropBelow(LayerCache* cache, int64_t token);

}  // namespace attnd
