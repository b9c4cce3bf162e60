// What one instruction set offers the CPU backend: a table of functions, each working on one
// worker's share. targets.cc compiles it once per instruction set.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cache_layout.h"
#include "kernels/dtype.h"
#include "kernels/params.h"

namespace attnd::kernels {

inline constexpr int64_t kPanel = 16;         // outputs of a weight panel, rows of a query panel
inline constexpr int64_t kDepthBlock = 256;   // K elements summed in registers, then added
inline constexpr int64_t kProjectRows = 192;  // rows of a projection tile; whole register tiles
inline constexpr int64_t kTileRows = 64;      // packed query rows that share a tile of keys
inline constexpr int64_t kTileKeys = kPageTokens;  // keys of a tile
inline constexpr int64_t kRangeKeys = 256;         // keys of a range; see README.md, invariance
inline constexpr int64_t kValueColumns = 32;       // of values that are widened at a time
inline constexpr int64_t kCacheLine = 64;
inline constexpr int64_t kTilePanels = kTileRows / kPanel;

constexpr int64_t RoundUp(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Floats from one row of a buffer of keys or values to the next: whole panels, and one more, for
// rows that are a power of two apart would share a few sets of the first-level cache.
constexpr int64_t PaddedWidth(int64_t width) { return RoundUp(width, kPanel) + kPanel; }

// Packed row p of a group: element k at base[(p / inner) * outer + (p % inner) * step + k].
template <typename T>
struct RowsView {
  T* base = nullptr;
  int64_t inner = 1;
  int64_t outer = 0;
  int64_t step = 0;

  T* Row(int64_t p) const { return base + (p / inner) * outer + (p % inner) * step; }
};

// Rows times panels: y(p, n) = sum_k x(p, k) w(n, k), n in [0, columns).
struct ProjectTile {
  DType dtype = DType::kF32;
  const void* panels = nullptr;  // [ceil(columns / 16)][depth][16]
  int64_t depth = 0;
  int64_t columns = 0;
  RowsView<const float> x;
  RowsView<float> y;
  int64_t row_begin = 0;
  int64_t rows = 0;       // <= kProjectRows
  float* pack = nullptr;  // [kProjectRows * kDepthBlock] of this worker
};

// Where the keys and values of one KV head lie. A score is the dot product over the first part
// of a key and, when rope_width > 0, over its rope part.
struct KeySource {
  const uint8_t* pool = nullptr;
  const int64_t* pages = nullptr;  // as in AttentionSequence
  int64_t first_page = 0;

  int64_t key_width = 0;
  int64_t rope_width = 0;
  int64_t value_width = 0;
  PageRows key;
  PageRows rope;
  PageRows value;
  bool value_is_key = false;  // latents: the value is the first part of the key

  // Expanded keys and values, when not null: token t at row t - expanded_begin, in place of the
  // pages' key and value (the rope part stays in the page).
  const float* expanded_key = nullptr;
  const float* expanded_value = nullptr;
  int64_t expanded_begin = 0;
  int64_t expanded_stride = 0;
};

// Running softmax of a tile's packed rows: maximum, sum of exponentials, and weighted values.
struct SoftmaxState {
  float* max = nullptr;     // [kTileRows]
  float* sum = nullptr;     // [kTileRows]
  float* values = nullptr;  // [kTileRows][RoundUp(value_width, 16)]
};

// Scratch of one worker.
struct AttendScratch {
  float* query = nullptr;   // [kTileRows / 16][key_width + rope_width][16]
  float* scores = nullptr;  // [kTileKeys][kTileRows]
  float* key = nullptr;     // [kTileKeys][PaddedWidth(key_width)]
  float* rope = nullptr;    // [kTilePanels][kTileKeys][rope_width]
  float* value = nullptr;   // [kTileKeys][kValueColumns]
};

// Packed rows against the keys [key_begin, key_end), which lie within one range.
struct AttendRange {
  KeySource keys;
  int64_t rows = 0;             // <= kTileRows
  const int64_t* lo = nullptr;  // [rows rounded up to 16]: intervals, ascending
  const int64_t* hi = nullptr;
  // Element offset within a token's rope keys of the one that a panel's rows meet: panels may
  // belong to different KV heads. Null without a rope part.
  const int64_t* rope_offset = nullptr;  // [kTilePanels]
  int64_t key_begin = 0;
  int64_t key_end = 0;
  int64_t next_key = -1;  // the key that will be asked for after key_end, to prefetch; -1: none
  AttendScratch scratch;  // query packed already
  SoftmaxState state;     // overwritten
};

struct KernelTable {
  const char* name = nullptr;
  void (*project)(const ProjectTile& tile) = nullptr;
  // Rotates `count` pairs of each of `heads` heads of one row.
  void (*rope)(float* x, const float* cos, const float* sin, int64_t heads, int64_t half) = nullptr;
  // `scale` is of int8 alone.
  void (*widen)(DType dtype, const void* src, float scale, int64_t n, float* dst) = nullptr;
  // 16 rows of `width` to a panel [width][16], scaled.
  void (*pack_panel)(const float* const* rows, int64_t width, float scale, float* panel) = nullptr;
  void (*attend)(const AttendRange& range) = nullptr;
  // total <- total merged with part, for rows of `width` values (a multiple of 16).
  void (*merge)(const SoftmaxState& total, const SoftmaxState& part, int64_t rows,
                int64_t width) = nullptr;
  void (*scale)(const float* x, int64_t n, float factor, float* y) = nullptr;
  void (*exp)(const float* x, int64_t n, float* y) = nullptr;  // as the softmax takes it
};

// The tables that this build has and this machine can run, best first.
std::vector<const KernelTable*> KernelTables();

}  // namespace attnd::kernels
