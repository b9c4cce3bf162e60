// The register tile that everything is built from, and projections on packed panels.
#if defined(KERNELS_CPU_MATMUL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KERNELS_CPU_MATMUL_INL_H_
#undef KERNELS_CPU_MATMUL_INL_H_
#else
#define KERNELS_CPU_MATMUL_INL_H_
#endif

#include <algorithm>

#include "kernels/cpu/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attnd::kernels {
namespace HWY_NAMESPACE {

// The scalar operand of a register tile, (row m, depth k): rows apart by a stride, or packed so
// that the rows of one k are neighbours.
struct StridedRows {
  const float* p;
  int64_t row;
  HWY_INLINE float At(int m, int64_t k) const { return p[m * row + k]; }
  HWY_INLINE StridedRows From(int64_t k) const { return {p + k, row}; }
};
struct PackedRows {
  const float* p;
  int64_t depth;  // elements from one k to the next
  HWY_INLINE float At(int m, int64_t k) const { return p[k * depth + m]; }
  HWY_INLINE PackedRows From(int64_t k) const { return {p + k * depth, depth}; }
};

// Rows anywhere.
template <int kRows>
struct PointedRows {
  const float* p[kRows];
  HWY_INLINE float At(int m, int64_t k) const { return p[m][k]; }
  HWY_INLINE PointedRows From(int64_t k) const {
    PointedRows rows;
    for (int m = 0; m < kRows; ++m) {
      rows.p[m] = p[m] + k;
    }
    return rows;
  }
};

// The vector operand, (depth k, vector j): 16 columns at p + k * depth; the next 16 lie `panel`
// elements on.
template <typename E>
struct Columns {
  const typename E::Stored* p;
  int64_t depth;
  int64_t panel;
  HWY_INLINE Columns From(int64_t k) const { return {p + k * depth, depth, panel}; }
  HWY_INLINE V Load(int j, int64_t k) const {
    return E::Load(p + (j / kPanelVectors) * panel + k * depth + (j % kPanelVectors) * kLanes);
  }
};

// kRows x kVectors accumulators. Every index is a constant of the expansion: with loops over
// arrays gcc 12 keeps them in memory (22 instead of 50 GFLOP/s on a Zen 3).
template <int kRows, int kVectors>
struct RegisterTile {
  V v[kRows * kVectors];

  // An implicit one would be compiled without this set's attributes, and Highway's constructor of a
  // NEON vector cannot be inlined there.
  HWY_INLINE RegisterTile() {}

  HWY_INLINE void Clear() { ClearAll(std::make_index_sequence<kRows * kVectors>()); }

  template <typename A, typename B>
  HWY_INLINE void Accumulate(const A& a, const B& b, int64_t depth) {
    for (int64_t k = 0; k < depth; ++k) {
      V column[kVectors];
      LoadColumns(b, k, column, std::make_index_sequence<kVectors>());
      AddRows(a, k, column, std::make_index_sequence<kRows>());
    }
  }

  // f(row, vector index, accumulator) for each.
  template <typename F>
  HWY_INLINE void ForEach(const F& f) {
    ForEachIndex(f, std::make_index_sequence<kRows * kVectors>());
  }

 private:
  template <size_t... kIndex>
  HWY_INLINE void ClearAll(std::index_sequence<kIndex...>) {
    ((v[kIndex] = hn::Zero(Floats())), ...);
  }
  template <typename B, size_t... kColumn>
  static HWY_INLINE void LoadColumns(const B& b, int64_t k, V* column,
                                     std::index_sequence<kColumn...>) {
    ((column[kColumn] = b.Load(static_cast<int>(kColumn), k)), ...);
  }
  template <typename A, size_t... kRow>
  HWY_INLINE void AddRows(const A& a, int64_t k, const V* column, std::index_sequence<kRow...>) {
    (AddRow<kRow>(hn::Set(Floats(), a.At(static_cast<int>(kRow), k)), column,
                  std::make_index_sequence<kVectors>()),
     ...);
  }
  template <size_t kRow, size_t... kColumn>
  HWY_INLINE void AddRow(V scalar, const V* column, std::index_sequence<kColumn...>) {
    ((v[kRow * kVectors + kColumn] =
          hn::MulAdd(scalar, column[kColumn], v[kRow * kVectors + kColumn])),
     ...);
  }
  template <typename F, size_t... kIndex>
  HWY_INLINE void ForEachIndex(const F& f, std::index_sequence<kIndex...>) {
    (f(static_cast<int>(kIndex) / kVectors, static_cast<int>(kIndex) % kVectors, v[kIndex]), ...);
  }
};

// Asks for memory some lines at a time, between the arithmetic that comes before its use. Into
// the second-level cache: the first is busy.
struct Prefetcher {
  const uint8_t* next = nullptr;
  const uint8_t* end = nullptr;
  int64_t step = 0;  // bytes

  Prefetcher(const uint8_t* begin, int64_t bytes, int64_t steps)
      : next(begin), end(begin + bytes), step(RoundUp((bytes + steps - 1) / steps, kCacheLine)) {}

  HWY_INLINE void Step() {
    const uint8_t* until = std::min(next + step, end);
    for (; next < until; next += kCacheLine) {
      __builtin_prefetch(next, 0, 2);
    }
  }
};

// Steps of the depth between prefetches: more at a time fill the queue of outstanding misses, and
// the arithmetic waits for its own.
inline constexpr int64_t kPrefetchDepth = 8;

template <typename A, typename B, typename Tile>
HWY_INLINE void AccumulateAndPrefetch(const A& a, const B& b, int64_t depth, Prefetcher* prefetch,
                                      Tile* sums) {
  for (int64_t k = 0; k < depth; k += kPrefetchDepth) {
    prefetch->Step();
    sums->Accumulate(a.From(k), b.From(k), std::min(kPrefetchDepth, depth - k));
  }
}

// Rows of a register tile of so many vectors; at most 8, for the row pointers.
template <int kVectors>
inline constexpr int kRowsFor = std::clamp(kAccumulators / kVectors, 1, 8);

// Calls f(integral_constant<rows>) for rows in [1, kMax].
template <int kMax, typename F>
HWY_INLINE void DispatchRows(int64_t rows, const F& f) {
  if constexpr (kMax > 1) {
    if (rows < kMax) {
      DispatchRows<kMax - 1>(rows, f);
      return;
    }
  }
  f(std::integral_constant<int, kMax>());
}

// Panels side by side in a tile of many rows: two where a vector is a whole panel.
inline constexpr int kManyPanels = kPanelVectors == 1 ? 2 : 1;
inline constexpr int kManyRows = kRowsFor<kManyPanels * kPanelVectors>;

// Where the rows of y that a register tile is for begin. Pointers, found once a task: the division
// in RowsView::Row, for every vector of every tile, was 13 % of a projection.
struct OutputRows {
  float* const* rows;
  int64_t column;
  HWY_INLINE float* Row(int m) const { return rows[m] + column; }
};

inline void FindRows(const ProjectTile& tile, int64_t rows, float** y) {
  for (int64_t row = 0; row < rows; ++row) {
    y[row] = tile.y.Row(tile.row_begin + row);
  }
}

// Functors, not lambdas: those gcc may decline to inline, and spill every accumulator.
struct WriteToRows {
  const OutputRows& rows;
  HWY_INLINE void operator()(int row, int j, V sum) const {
    hn::StoreU(sum, Floats(), rows.Row(row) + j * kLanes);
  }
};
struct AddToRows {
  const OutputRows& rows;
  HWY_INLINE void operator()(int row, int j, V sum) const {
    float* y = rows.Row(row) + j * kLanes;
    hn::StoreU(hn::Add(hn::LoadU(Floats(), y), sum), Floats(), y);
  }
};
struct WriteToArray {
  float* array;
  int64_t row_elements;
  HWY_INLINE void operator()(int row, int j, V sum) const {
    hn::StoreU(sum, Floats(), array + row * row_elements + j * kLanes);
  }
};

// Adds a register tile to y, or writes it (the first block of the depth). Only `columns` columns
// are y's.
template <int kRows, int kVectors>
HWY_INLINE void StoreTile(RegisterTile<kRows, kVectors>& tile, const OutputRows& rows,
                          int64_t columns, bool first) {
  constexpr int kColumns = kVectors * kLanes;
  if (columns >= kColumns) {
    if (first) {
      tile.ForEach(WriteToRows{rows});
    } else {
      tile.ForEach(AddToRows{rows});
    }
    return;
  }
  float sums[kRows * kColumns];
  tile.ForEach(WriteToArray{sums, kColumns});
  for (int row = 0; row < kRows; ++row) {
    float* y = rows.Row(row);
    const float* sum = sums + row * kColumns;
    for (int64_t n = 0; n < columns; ++n) {
      y[n] = first ? sum[n] : y[n] + sum[n];
    }
  }
}

// A few rows against kPanels whole panels, streamed once; the rows are read where they lie.
template <typename E, int kRows, int kPanels>
HWY_INLINE void StreamPanels(const ProjectTile& tile, const typename E::Stored* panels,
                             float* const* y, int64_t column) {
  constexpr int kVectors = kPanels * kPanelVectors;
  for (int64_t k = 0; k < tile.depth; k += kDepthBlock) {
    const int64_t depth = std::min(kDepthBlock, tile.depth - k);
    PointedRows<kRows> x;
    for (int row = 0; row < kRows; ++row) {
      x.p[row] = tile.x.Row(tile.row_begin + row) + k;
    }
    const Columns<E> columns{panels + k * kPanel, kPanel, tile.depth * kPanel};
    RegisterTile<kRows, kVectors> sums;
    sums.Clear();
    if constexpr (kPanels == 1) {
      // One stream alone is slower than the arithmetic of a few rows: 9 instead of 20 GB/s.
      const auto* ahead = reinterpret_cast<const uint8_t*>(columns.p + kDepthBlock * kPanel);
      Prefetcher prefetch(ahead, depth * kPanel * sizeof(*panels), depth / kPrefetchDepth + 1);
      AccumulateAndPrefetch(x, columns, depth, &prefetch, &sums);
    } else {
      sums.Accumulate(x, columns, depth);
    }
    StoreTile(sums, OutputRows{y, column}, tile.columns - column, k == 0);
  }
}

template <typename E>
HWY_INLINE void ProjectFew(const ProjectTile& tile) {
  const auto* panels = static_cast<const typename E::Stored*>(tile.panels);
  DispatchRows<kManyRows>(tile.rows, [&](auto rows) HWY_ATTR {
    constexpr int kRows = decltype(rows)::value;
    constexpr int kPanels = std::clamp(kAccumulators / (kRows * kPanelVectors), 1, 4);
    float* y[kRows];
    FindRows(tile, kRows, y);
    int64_t column = 0;
    for (; column + kPanels * kPanel <= tile.columns; column += kPanels * kPanel) {
      StreamPanels<E, kRows, kPanels>(tile, panels + column * tile.depth, y, column);
    }
    for (; column < tile.columns; column += kPanel) {
      StreamPanels<E, kRows, 1>(tile, panels + column * tile.depth, y, column);
    }
  });
}

// Rows split evenly over register tiles: 16 are 5 + 5 + 6, for a tile of 4 has too few sums to
// hide the latency of an addition.
struct RowTiles {
  explicit RowTiles(int64_t all) : rows(all), count((all + kManyRows - 1) / kManyRows) {}
  int64_t Begin(int64_t tile) const { return rows * tile / count; }

  int64_t rows;
  int64_t count;
};

// x rows of one block of the depth as [register tile][k][kManyRows].
HWY_INLINE void PackRows(const ProjectTile& tile, int64_t k0, int64_t depth) {
  const RowTiles tiles(tile.rows);
  for (int64_t t = 0; t < tiles.count; ++t) {
    const int64_t begin = tiles.Begin(t);
    const int64_t count = tiles.Begin(t + 1) - begin;
    const float* x[kManyRows];
    for (int64_t m = 0; m < count; ++m) {
      x[m] = tile.x.Row(tile.row_begin + begin + m) + k0;
    }
    PackFew(x, count, depth, tile.pack + t * kManyRows * depth, kManyRows);
  }
}

template <typename E, int kPanels>
HWY_INLINE void PackedPanel(const ProjectTile& tile, const typename E::Stored* panel,
                            float* const* y, int64_t column, int64_t depth, bool first) {
  const Columns<E> columns{panel, kPanel, tile.depth * kPanel};
  // The same block of the depth of the panels that come next.
  const auto* ahead = reinterpret_cast<const uint8_t*>(panel + kPanels * tile.depth * kPanel);
  const RowTiles tiles(tile.rows);
  Prefetcher prefetch(ahead, depth * kPanel * sizeof(*panel),
                      tiles.count * (depth / kPrefetchDepth + 1));
  for (int64_t t = 0; t < tiles.count; ++t) {
    const PackedRows rows{tile.pack + t * kManyRows * depth, kManyRows};
    const int64_t begin = tiles.Begin(t);
    DispatchRows<kManyRows>(tiles.Begin(t + 1) - begin, [&](auto count) HWY_ATTR {
      RegisterTile<decltype(count)::value, kPanels * kPanelVectors> sums;
      sums.Clear();
      AccumulateAndPrefetch(rows, columns, depth, &prefetch, &sums);
      StoreTile(sums, OutputRows{y + begin, column}, tile.columns - column, first);
    });
  }
}

template <typename E>
HWY_INLINE void ProjectMany(const ProjectTile& tile) {
  const auto* panels = static_cast<const typename E::Stored*>(tile.panels);
  float* y[kProjectRows];
  FindRows(tile, tile.rows, y);
  for (int64_t k = 0; k < tile.depth; k += kDepthBlock) {
    const int64_t depth = std::min(kDepthBlock, tile.depth - k);
    PackRows(tile, k, depth);
    int64_t column = 0;
    for (; column + kManyPanels * kPanel <= tile.columns; column += kManyPanels * kPanel) {
      PackedPanel<E, kManyPanels>(tile, panels + column * tile.depth + k * kPanel, y, column, depth,
                                  k == 0);
    }
    for (; column < tile.columns; column += kPanel) {
      PackedPanel<E, 1>(tile, panels + column * tile.depth + k * kPanel, y, column, depth, k == 0);
    }
  }
}

// Both ways sum a block of the depth in registers, k ascending, and add the blocks in order:
// the bits of a row are the same in either, and in any tile.
void Project(const ProjectTile& tile) {
  DispatchElement(tile.dtype, [&](auto element) HWY_ATTR {
    if (tile.rows <= kManyRows) {
      ProjectFew<decltype(element)>(tile);
    } else {
      ProjectMany<decltype(element)>(tile);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace attnd::kernels
HWY_AFTER_NAMESPACE();

#endif
