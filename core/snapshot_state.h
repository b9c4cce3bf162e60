// What an exported session says of itself besides the bytes of its pages: the numbers of its
// layers' caches (layer_cache.h), and which pages follow from them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/layer_cache.h"
#include "core/layer_plan.h"
#include "core/page_pool.h"
#include "core/session.h"

namespace attnd {

// One layer's cache; page_start, tail_start and tail_end in tokens, multiples of a page.
struct LayerState {
  int64_t length = 0;
  int64_t first = 0;
  int64_t last_step_start = 0;
  int64_t page_start = 0;
  int64_t tail_start = 0;
  int64_t tail_end = 0;
  int64_t held_rows = 0;
};
LayerState StateOf(const LayerCache& cache);

struct SnapshotState {
  SessionSpec spec;
  std::vector<LayerState> layers;
};

// OK when a session of this model may be in such a state; else FORMAT_MISMATCH names the layer and
// the number. Whatever passes can be stepped, cut and repeated: no page is missing.
absl::Status CheckState(const LayerPlan& plan, const SnapshotState& state);

// A page, and how many of its slots hold rows; the others are zero.
struct SnapshotPage {
  PageKind kind = PageKind::kGlobal;
  LayerKind layer_kind = LayerKind::kLocal;
  int64_t rows = 0;
};

// By layer: the pages up to its length, its tail's, those of held rows. The state has passed
// CheckState().
std::vector<SnapshotPage> PagesOf(const LayerPlan& plan, const SnapshotState& state);
int64_t BytesOf(const std::vector<SnapshotPage>& pages, const PagePool& pool);

}  // namespace attnd
