// The register tile that everything is built from, and projections on packed panels.
#if defined(KERNELS_CPU_MATMUL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KERNELS_CPU_MATMUL_INL_H_
#undef KERNELS_CPU_MATMUL_INL_H_
#else
#define KERNELS_CPU_MATMUL_INL_H_
#endif

#include <algorithm>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attnd::kernels {
namespace HWY_NAMESPACE {

// The scalar operand of a register tile, (row m, depth k): rows apart by a stride, or packed so
// that the rows of one k are neighbours.
struct StridedRows {
  const float* p;
  int64_t row;
  HWY_INLINE float At(int m, int64_t k) const { return p[m * row + k]; }
};
struct PackedRows {
  const float* p;
  int64_t depth;  // elements from one k to the next
  HWY_INLINE float At(int m, int64_t k) const { return p[k * depth + m]; }
};

// Rows anywhere.
template <int kRows>
struct PointedRows {
  const float* p[kRows];
  HWY_INLINE float At(int m, int64_t k) const { return p[m][k]; }
};

// The vector operand, (depth k, vector j): 16 columns at p + k * depth; the next 16 lie `panel`
// elements on.
template <typename E>
struct Columns {
  const typename E::Stored* p;
  int64_t depth;
  int64_t panel;
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

// Rows of y that a register tile is for.
struct OutputRows {
  const RowsView<float>& y;
  int64_t row_begin;
  int64_t column;
  HWY_INLINE float* Row(int m) const { return y.Row(row_begin + m) + column; }
};

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
                             int64_t column) {
  constexpr int kVectors = kPanels * kPanelVectors;
  for (int64_t k = 0; k < tile.depth; k += kDepthBlock) {
    const int64_t depth = std::min(kDepthBlock, tile.depth - k);
    PointedRows<kRows> x;
    for (int row = 0; row < kRows; ++row) {
      x.p[row] = tile.x.Row(tile.row_begin + row) + k;
    }
    RegisterTile<kRows, kVectors> sums;
    sums.Clear();
    sums.Accumulate(x, Columns<E>{panels + k * kPanel, kPanel, tile.depth * kPanel}, depth);
    StoreTile(sums, OutputRows{tile.y, tile.row_begin, column}, tile.columns - column, k == 0);
  }
}

template <typename E>
HWY_INLINE void ProjectFew(const ProjectTile& tile) {
  const auto* panels = static_cast<const typename E::Stored*>(tile.panels);
  DispatchRows<kManyRows>(tile.rows, [&](auto rows) HWY_ATTR {
    constexpr int kRows = decltype(rows)::value;
    constexpr int kPanels = std::clamp(kAccumulators / (kRows * kPanelVectors), 1, 4);
    int64_t column = 0;
    for (; column + kPanels * kPanel <= tile.columns; column += kPanels * kPanel) {
      StreamPanels<E, kRows, kPanels>(tile, panels + column * tile.depth, column);
    }
    for (; column < tile.columns; column += kPanel) {
      StreamPanels<E, kRows, 1>(tile, panels + column * tile.depth, column);
    }
  });
}

// x rows of one block of the depth as [row / kManyRows][k][kManyRows].
HWY_INLINE void PackRows(const ProjectTile& tile, int64_t k0, int64_t depth) {
  for (int64_t row = 0; row < tile.rows; row += kManyRows) {
    float* pack = tile.pack + row * depth;
    const int64_t count = std::min<int64_t>(kManyRows, tile.rows - row);
    for (int64_t m = 0; m < count; ++m) {
      const float* x = tile.x.Row(tile.row_begin + row + m) + k0;
      for (int64_t k = 0; k < depth; ++k) {
        pack[k * kManyRows + m] = x[k];
      }
    }
  }
}

template <typename E, int kPanels>
HWY_INLINE void PackedPanel(const ProjectTile& tile, const typename E::Stored* panel,
                            int64_t column, int64_t depth, bool first) {
  const Columns<E> columns{panel, kPanel, tile.depth * kPanel};
  for (int64_t begin = 0; begin < tile.rows; begin += kManyRows) {
    const PackedRows rows{tile.pack + begin * depth, kManyRows};
    DispatchRows<kManyRows>(tile.rows - begin, [&](auto count) HWY_ATTR {
      RegisterTile<decltype(count)::value, kPanels * kPanelVectors> sums;
      sums.Clear();
      sums.Accumulate(rows, columns, depth);
      StoreTile(sums, OutputRows{tile.y, tile.row_begin + begin, column}, tile.columns - column,
                first);
    });
  }
}

template <typename E>
HWY_INLINE void ProjectMany(const ProjectTile& tile) {
  const auto* panels = static_cast<const typename E::Stored*>(tile.panels);
  for (int64_t k = 0; k < tile.depth; k += kDepthBlock) {
    const int64_t depth = std::min(kDepthBlock, tile.depth - k);
    PackRows(tile, k, depth);
    int64_t column = 0;
    for (; column + kManyPanels * kPanel <= tile.columns; column += kManyPanels * kPanel) {
      PackedPanel<E, kManyPanels>(tile, panels + column * tile.depth + k * kPanel, column, depth,
                                  k == 0);
    }
    for (; column < tile.columns; column += kPanel) {
      PackedPanel<E, 1>(tile, panels + column * tile.depth + k * kPanel, column, depth, k == 0);
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
