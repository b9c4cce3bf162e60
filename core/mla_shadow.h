// Shadows: the decompressed keys and values of global layers that decode often (hot ones), kept
// in memory of their own beside the page pool. Where latents are four times as wide as heads, the
// attention of a decode over them takes half the time (kernels/README.md, Speed).
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/backend.h"

namespace attnd {

// Decodes in a row after which a layer is hot. Filling a shadow costs what the next 11 decodes
// save (128 heads, 8 KV heads, latents of 512); a session that has decoded so often mostly goes on.
inline constexpr int64_t kHotDecodes = 8;
// Rows of history decompressed in one batch for all its sessions: a GFLOP, as much as one absorbed
// decode over 4096 keys. Until a shadow is complete its layer goes on absorbed.
inline constexpr int64_t kShadowFillRows = 512;

class ShadowStore;

// The shadow of one layer of one session, with or without pages. All copies of a LayerCache share
// it; the engine's thread alone uses it, and any thread may let go of it.
class LayerShadow {
 public:
  explicit LayerShadow(ShadowStore* store) : store_(store) {}
  LayerShadow(const LayerShadow&) = delete;
  LayerShadow& operator=(const LayerShadow&) = delete;
  ~LayerShadow();

  // Rows from `position` on are the layer's no longer. Safe whether or not the cut is committed:
  // what is missing is decompressed again.
  void Cut(int64_t position);
  // Byte offsets into the store; token t lies in pages()[t / kPageTokens].
  const std::vector<int64_t>& pages() const { return pages_; }
  // Rows [0, rows()) are there and the layer's.
  int64_t rows() const { return rows_; }

 private:
  friend class ShadowStore;

  ShadowStore* const store_;
  std::vector<int64_t> pages_;
  int64_t rows_ = 0;
  int64_t written_ = 0;  // >= rows_: likewise, but from rows_ on only if the running step succeeds
  int64_t decodes_ = 0;  // in a row
  int64_t hot_since_ = 0;                           // batch of the first of them
  int64_t last_use_ = 0;                            // batch
  std::list<LayerShadow*>::iterator in_use_order_;  // while it has pages
};

// Rows of a layer to decompress before a chunk attends; the shadow then has [0, end).
struct ShadowFill {
  int64_t begin = 0;
  int64_t end = 0;
};

// Rows [begin, end) of a decode that began at row `position`.
struct ShadowChunk {
  int64_t position = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

// The memory of all shadows, and the policy.
//
// A layer that has decoded kHotDecodes times in a row takes pages for its whole history; every
// decode then extends it, a cut cuts it, a prefill leaves it behind (the next decodes catch up),
// and it ends with its session. When no page is free, shadows give way that were last used before
// the taker's row of decodes began, the least recently used first. So an idle session makes room,
// and sessions that decode by turns never push each other out, which would cost a decompression
// each time: those that came too late stay absorbed, for pages that cannot be had are no error.
class ShadowStore {
 public:
  // `memory` outlives the store, and the store all shadows.
  ShadowStore(kernels::DeviceMemory* memory, int64_t page_bytes);
  ~ShadowStore();

  uint8_t* data() const { return memory_->data(); }
  int64_t used_bytes() const;

  // From the engine's thread. A batch of a global layer begins.
  void BeginBatch();
  // Before a decode's chunk runs. The chunk may use the shadow if it then reaches the chunk's end.
  ShadowFill Plan(LayerShadow* shadow, const ShadowChunk& chunk);
  // The decode has succeeded.
  static void Commit(LayerShadow* shadow) { shadow->rows_ = shadow->written_; }
  // The layer does something else than decode.
  static void Cool(LayerShadow* shadow) { shadow->decodes_ = 0; }

 private:
  friend class LayerShadow;

  // Pages up to `count`, all or none.
  bool TakePages(LayerShadow* shadow, int64_t count);
  void Drop(LayerShadow* shadow);
  void DropLocked(LayerShadow* shadow);
  void TruncateLocked(LayerShadow* shadow, int64_t count);

  kernels::DeviceMemory* const memory_;
  const int64_t page_bytes_;
  const int64_t num_pages_;
  int64_t batch_ = 0;
  int64_t fill_left_ = 0;  // of kShadowFillRows in this batch

  mutable std::mutex mutex_;  // of what follows, and of every shadow's pages_
  std::vector<int64_t> free_;
  std::list<LayerShadow*> use_order_;  // those with pages, the least recently used first
};

}  // namespace attnd
